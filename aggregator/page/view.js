// What the page shows as text and tables. Texts from outside are only ever set as text, never as HTML.
"use strict";

const Cairn = {};

(() => {
  const SIGNS = {
    a: ["●", "ok", "accepted"],
    w: ["◐", "wait", "awaited"],
    l: ["L", "worry", "late: the round closed without it"],
    r: ["✕", "bad", "rejected"],
    n: ["○", "none", "not invited"],
  };

  // States of boards: sign, its look, words for people, and how much it asks for a person (0: most).
  const STATES = {
    failed: ["✕", "bad", "failed", 0],
    twice: ["✕", "bad", "runs twice", 0],
    ahead: ["✕", "bad", "ahead of the ledger", 0],
    silent: ["!", "worry", "silent", 1],
    missing: ["!", "worry", "missing", 1],
    paused: ["‖", "wait", "paused", 2],
    never: ["!", "worry", "never heard", 1],
    expected: ["◌", "none", "not heard yet", 2],
    halted: ["◌", "none", "stopped", 2],
    stopped: ["◌", "none", "stopped", 2],
    awaited: ["◐", "wait", "awaited", 3],
    quorum: ["◌", "none", "waiting", 3],
    merging: ["◌", "none", "waiting", 3],
    waiting: ["◌", "none", "waiting", 3],
    run_paused: ["◌", "none", "run paused", 3],
    drained: ["○", "none", "drained", 4],
    elsewhere: ["○", "none", "serves another job", 4],
    unfit: ["○", "none", "not selected", 4],
    rests: ["‖", "wait", "rests", 2],
    needs: ["‖", "wait", "waits for members", 2],
    left_out: ["○", "none", "not invited", 4],
    accepted: ["●", "ok", "accepted", 5],
    over: ["●", "ok", "finished", 5],
    gone: ["○", "none", "gone", 4],
    revoked: ["–", "none", "revoked", 6],
  };
  const UNKNOWN = ["?", "none", "unknown", 2];

  const FRESH_MS = 300000; // how long a board's words about itself are shown
  const MANY = 200; // boards from which on groups are shown
  const ROWS = 100; // most rows of a table
  const FOLD = 3; // more alerts of one kind become one line
  const COLUMNS = 30; // rounds in the matrix
  const GROUP_ROWS = 60; // groups in the matrix
  const VERSION_ROWS = 8;

  // --- building blocks ---

  // Makes an element. Strings among the children become text.
  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }

  function sign([mark, look, words]) {
    return [el("span", { class: `sign ${look}`, "aria-hidden": "true" }, mark), el("span", { class: "hidden" }, words)];
  }

  // Replaces what an element holds if key differs from the last time, and keeps the focus.
  const keys = new Map();
  function update(id, key, build) {
    const place = document.getElementById(id);
    const text = JSON.stringify(key);
    if (keys.get(id) === text) return false;
    keys.set(id, text);
    const active = document.activeElement;
    const focused = active && place.contains(active) ? active.dataset.focus : null;
    place.replaceChildren(...[build()].flat().filter((child) => child !== null && child !== ""));
    if (focused) {
      const again = [...place.querySelectorAll("[data-focus]")].find((item) => item.dataset.focus === focused);
      if (again) again.focus();
    }
    return true;
  }

  // Makes a table. Before the text of a head may stand "#" for a column of numbers, and "~" for a column that
  // narrow screens leave out.
  function table(caption, heads, rows) {
    const names = heads.map((head) => head.replace(/^[#~]+/, ""));
    const looks = heads.map((head) => {
      const marks = head.match(/^[#~]*/)[0];
      return [marks.includes("#") ? "number" : "", marks.includes("~") ? "wide" : "", head === "why" ? "why" : ""]
        .filter(Boolean).join(" ") || null;
    });
    const look = (i) => looks[i];
    const head = names.map((text, i) => el("th", { scope: "col", class: look(i) }, text));
    const body = rows.map((row) => {
      if (row instanceof HTMLElement) return row;
      return el("tr", { class: row.look || null }, ...row.cells.map((cell, i) =>
        i === 0 ? el("th", { scope: "row", class: look(i) }, ...[cell].flat())
          : el("td", { class: look(i) }, ...[cell].flat())));
    });
    return el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...body));
  }

  // --- numbers as text ---

  function bytes(value) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) {
      value /= 1000;
      unit += 1;
    }
    return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
  }

  function duration(ms) {
    const s = Math.max(0, Math.round(ms / 1000));
    if (ms < 9950 && ms % 1000) return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.round(s / 60)} min`;
    if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
    return `${Math.round(s / 86400)} days`;
  }

  function age(ms) {
    return `${duration(Math.max(0, Math.floor(ms / 1000) * 1000))} ago`;
  }

  const two = (number) => String(number).padStart(2, "0");
  function clock(ms) {
    const date = new Date(ms);
    return `${two(date.getHours())}:${two(date.getMinutes())}`;
  }
  function day(ms) {
    const date = new Date(ms);
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)}`;
  }
  // Today's time alone, else with the date.
  function moment(ms, now) {
    return new Date(ms).toDateString() === new Date(now).toDateString() ? clock(ms) : day(ms);
  }

  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const plain = (number) => Number(number).toLocaleString("en");
  const digits = (number) => Number(number).toPrecision(4);
  const plural = (count, word) => `${plain(count)} ${word}${count === 1 ? "" : "s"}`;

  function scoreText(score) {
    return score.accuracy !== undefined ? percent(score.accuracy) : `loss ${digits(score.loss)}`;
  }
  const judge = (by) => (by === "central" ? "the gateway's set" : "median of the boards");

  // --- state of boards ---

  const stateOf = (board) => STATES[board.state] || UNKNOWN;
  const isTrouble = (board) => stateOf(board)[3] <= 1;

  function sortBoards(boards) {
    return boards.map((board, i) => [stateOf(board)[3], i, board]).sort((a, b) => a[0] - b[0] || a[1] - b[1])
      .map((entry) => entry[2]);
  }

  // --- alerts ---

  // Alerts of the same kind with the same text are shown once, however many boards they are about.
  function foldAlerts(store) {
    const folded = new Map();
    for (const alert of store.state.alerts) {
      const key = `${alert.level} ${alert.kind} ${alert.text}`;
      if (!folded.has(key)) folded.set(key, []);
      folded.get(key).push(alert);
    }
    return [...folded.values()].flatMap((same) => (same.length > FOLD ? [{ ...same[0], same }] : same));
  }

  // The names of boards or groups that an alert is about.
  function subjectOf(alert, store) {
    const name = (one) => one.board || one.group;
    if (alert.same) {
      const all = [...store.boards.values()].filter((board) => board.state === alert.kind).length;
      const count = Math.max(all, alert.same.length);
      return `${plural(count, "board")}, ${alert.same.slice(0, FOLD).map(name).join(", ")} and others: `;
    }
    if (alert.board) return alert.group && alert.group !== alert.board ? `${alert.board} (${alert.group}): ` : `${alert.board}: `;
    return alert.group ? `group ${alert.group}: ` : "";
  }

  function showAlerts(store) {
    const { alerts, alerts_more: more } = store.state;
    const marks = { error: ["✕", "bad", "error"], warning: ["!", "worry", "warning"], info: ["i", "wait", "note"] };
    const folded = foldAlerts(store);
    // What is folded is counted in full already.
    const left = folded.some((alert) => alert.same) ? 0 : more;
    const lines = folded.map((alert) => [alert, subjectOf(alert, store)]);
    document.getElementById("alerts-none").hidden = alerts.length > 0;
    update("alerts-list", [lines, left], () => {
      const items = lines.map(([alert, subject]) => el("li", { class: `alert ${alert.level}` },
        el("span", {}, ...sign(marks[alert.level] || UNKNOWN)), el("span", {}, el("strong", {}, subject), alert.text),
        alert.since_ms && !alert.same ? el("span", { class: "age", "data-since": alert.since_ms }) : ""));
      if (left) items.push(el("li", { class: "quiet" }, `… and ${plain(left)} more`));
      return items;
    });
  }

  // --- tiles ---

  const PHASES = {
    gather: "waiting for groups", open: "open", closing: "merging", measure: "measuring the version", ended: "ended",
  };

  function tile(title, value, ...lines) {
    return el("div", { class: "tile" }, el("dt", {}, title), el("dd", {}, el("div", { class: "value" },
      ...[value].flat()), ...lines.map((line) => line instanceof HTMLElement ? line
      : el("div", { class: "quiet" }, line))));
  }

  // Boards measure a version in the round after it, so the newest one has no score, and the last one gets none.
  function unmeasured({ newest, run }) {
    if (newest.by !== "boards" || newest.version >= run.version) return "";
    const which = run.phase === "ended" ? `version ${run.version}, the last one, has no score` : `version ${run.version} has no score yet`;
    return `${which}: boards measure a version in the round after it`;
  }

  function learningTile({ newest, best, run }) {
    if (!newest) return tile("Score", "–", "no version has been measured yet");
    const name = newest.accuracy !== undefined ? "Accuracy" : "Loss";
    const value = newest.accuracy !== undefined ? percent(newest.accuracy) : digits(newest.loss);
    return tile(name, value, `version ${newest.version}, ${judge(newest.by)}`,
      best ? `best: ${scoreText(best)}, version ${best.version}` : "", unmeasured({ newest, run }));
  }

  function roundTile(store) {
    const { run, groups } = store.state;
    const awaited = groups.filter((group) => group.sign === "w").map((group) => group.name);
    const lines = [];
    if (run.phase === "ended") lines.push("the run is over");
    else if (run.phase === "open") {
      const left = run.remaining_ms === undefined ? "" : `, ${duration(Math.floor(run.remaining_ms / 1000) * 1000)} left`;
      lines.push(`open: ${run.accepted} of ${plural(run.quorum, "update")}${left}`);
    } else lines.push(PHASES[run.phase] || run.phase);
    if (run.paused) lines.push(run.paused === "now" ? "paused: the round is held" : "paused: no other round is opened");
    if (run.phase === "open" && awaited.length) {
      const named = awaited.slice(0, 3).join(", ");
      lines.push(`awaits ${named}${awaited.length > 3 ? ` and ${plain(awaited.length - 3)} more` : ""}`);
    }
    if (!run.running && run.phase !== "ended") lines.push("the gateway is not running");
    return tile("Round", [`${plain(run.round)} `, el("small", {}, `of ${plain(run.rounds)}`)],
      el("progress", { max: run.rounds, value: run.version, "aria-label": "rounds done" }), ...lines);
  }

  function boardsTile(store) {
    const enrolled = [...store.boards.values()].filter((board) => board.state !== "revoked");
    const trouble = enrolled.filter(isTrouble);
    const counts = {};
    for (const board of trouble) counts[stateOf(board)[2]] = (counts[stateOf(board)[2]] || 0) + 1;
    const words = Object.entries(counts).map(([word, count]) => `${plain(count)} ${word}`).join(", ");
    const samples = enrolled.reduce((sum, board) => sum + samplesOf(board), 0);
    const gone = enrolled.filter((board) => board.state === "gone").length;
    const rest = gone ? `${plain(gone)} gone, now that the run is over` : "none needs a person";
    return tile("Boards", [`${plain(enrolled.length - trouble.length)} `, el("small", {},
      `of ${plain(enrolled.length)} well`)], words || rest, `in ${plural(store.state.run.groups, "group")}`
      + (samples ? `, ${plural(samples, "sample")}` : ""));
  }

  function costTile(store) {
    const { bytes: cost } = store.state;
    const sent = cost.in.messages + cost.out.messages;
    const share = denseShare(store);
    return tile("Sent", bytes(sent), `${bytes(cost.in.messages)} from boards, ${bytes(cost.out.messages)} to them`,
      share ? `1/${plain(share)} of float32 both ways` : "");
  }

  // How many times more dense float32 both ways would be than the payload; 0: not known.
  function denseShare({ state, versions }) {
    if (!versions[0]) return 0; // an early part of a long run is not here
    const payload = (state.bytes.in.payload || 0) + (state.bytes.out.payload || 0);
    const updates = versions.reduce((sum, version) => sum + (version && version.updates || 0), 0);
    return payload && state.bytes.dense ? Math.round(2 * state.bytes.dense * updates / payload) : 0;
  }

  function endTile({ state, versions }) {
    const { end, run } = state;
    const earlier = [];
    if (end.target_accuracy) earlier.push(`at ${percent(end.target_accuracy)}`);
    if (end.target) earlier.push(`at ${end.metric} ${digits(end.target)}`);
    if (end.patience) earlier.push(`after ${plural(end.patience, "round")} without a better version`);
    const sooner = earlier.length && run.phase !== "ended" ? `earlier ${earlier.join(" or ")}` : "";
    if (run.phase === "ended") {
      const last = versions[run.version];
      return tile("End", last && last.made_ms ? moment(last.made_ms, state.date_ms) : "over", end.reason || "");
    }
    const pace = end.round_ms ? ` at ${duration(end.round_ms)} a round` : "";
    if (end.left_ms === undefined) return tile("End", "–", `${plural(end.rounds_left, "round")} left${pace}`, sooner);
    const at = moment(state.date_ms + end.left_ms, state.date_ms).split(" ");
    return tile("End", [`~ ${at[0]}`, at[1] ? el("small", {}, ` ${at[1]}`) : ""],
      `${plural(end.rounds_left, "round")} left${pace}`, sooner);
  }

  function showTiles(store) {
    const tiles = [learningTile(store.state), roundTile(store), boardsTile(store), costTile(store), endTile(store)];
    update("tiles", tiles.map((made) => made.outerHTML), () => tiles);
  }

  // --- boards ---

  function hardware(board) {
    const parts = [board.type, board.cpus ? `${board.cpus} cpus` : "",
      board.memory ? `${(board.memory / 2 ** 30).toFixed(1)} GiB` : "",
      board.power_mw ? `${+(board.power_mw / 1000).toPrecision(3)} W` : "",
      board.gpu ? `GPU ${board.gpu}` : ""];
    return parts.filter(Boolean).join(", ") || "–";
  }

  // Loaded rounds in which a group took part, by sign.
  function countSigns(store, group) {
    const counts = { a: 0, l: 0, r: 0, n: 0, w: 0 };
    for (const version of store.versions) {
      const letter = version && version.signs && version.signs[version.groups.get(group)];
      if (letter) counts[letter] += 1;
    }
    return counts;
  }

  const heard = (board) => (board.heard_ms ? el("span", { class: "nowrap", "data-heard": board.name }) : "–");

  // What a board said of itself, if that is fresh.
  function healthOf(store, board) {
    const { health } = board;
    return health && store.state.clock_ms - health.told_ms < FRESH_MS ? health : {};
  }

  const degrees = (health) => (health.temperature_c === undefined ? "–"
    : `${health.temperature_c.toFixed(0)}${health.throttled ? "!" : ""}`);
  const watts = (health) => (health.power_w === undefined ? "–" : String(+health.power_w.toPrecision(3)));

  function progress(health) {
    return health.state === "training" && health.steps ? `, step ${plain(health.step)} of ${plain(health.steps)}` : "";
  }

  // Which part of a model that is cut the board holds.
  function chainText({ part, parts, chain, chains, bubble }) {
    const of = chains > 1 ? `, chain ${plain(chain)} of ${plain(chains)}` : "";
    const waits = bubble ? `; its boards compute nothing for ${Math.round(100 * bubble)} % of a step` : "";
    return `part ${plain(part)} of ${plain(parts)}${of}${waits}`;
  }

  // A board's own words about itself, as pairs for its detail row.
  function healthFacts(health) {
    if (!health.state) return [];
    const facts = [["it says", `${health.state}${health.pause ? ` (${health.pause})` : ""}${progress(health)}`
      + (health.round ? `, round ${plain(health.round)}` : "")]];
    if (health.temperature_c !== undefined)
      facts.push(["temperature", `${health.temperature_c.toFixed(1)} °C${health.throttled ? ", throttled" : ""}`]);
    else if (health.throttled) facts.push(["throttled", "yes"]);
    if (health.power_w !== undefined) facts.push(["power", `${watts(health)} W${health.battery ? " from a battery" : ""}`]);
    if (health.samples) facts.push(["samples", plain(health.samples)]);
    if (health.samples_per_s) facts.push(["speed", `${digits(health.samples_per_s)} samples a second`]);
    if (health.chain) facts.push(["of the model", chainText(health.chain)]);
    if (health.resident_mib) facts.push(["memory in use", `${plain(health.resident_mib)} MiB`]);
    return facts;
  }

  function lastError(store, more) {
    const { last_error: last } = more || {};
    if (!last) return [];
    return [["last error", `${moment(last.date_ms, store.state.date_ms)}: ${last.text}`
      + (last.count > 1 ? ` (${plain(last.count)} errors so far)` : "")]];
  }

  function judgement(group) {
    const counted = `the update counted for ${Math.round(100 * group.factor)} %`;
    const times = group.refused_in_a_row;
    return times ? `${counted}; refused ${plain(times)} in a row` : counted;
  }

  function detailRow(store, board, columns) {
    const counts = countSigns(store, board.group);
    const more = store.details.get(board.name);
    const facts = [
      ["hardware", hardware(board)],
      ...[["system", board.system], ["cairn-node", board.build], ["slot", board.slot],
        ["version in the slot", board.slot_version],
        ["last update", board.update && `${board.update} ${board.update_version || ""}`]].filter(([, value]) => value),
      ["group", board.group],
      ["last heard", heard(board)],
      ...healthFacts(healthOf(store, board)),
      ...Cairn.sensorCurves(more && more.sensors),
      ...lastError(store, more),
      ["group's updates", `${plain(counts.a)} accepted, ${plain(counts.l)} late, ${plain(counts.r)} rejected`],
      ["most samples a round", board.max_weight ? plain(board.max_weight) : "the job's limit"],
    ];
    if (more && more.group && more.group.rejected_reason)
      facts.push([`rejected in round ${more.group.rejected_round}`, more.group.rejected_reason]);
    if (more && more.group && more.group.judged_round)
      facts.push([`robust rule, round ${more.group.judged_round}`, judgement(more.group)]);
    return el("tr", { class: "detail" }, el("td", { colspan: columns }, el("dl", {},
      ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))));
  }

  const BOARD_HEADS = ["board", "state", "why", "~heard", "~group", "#~samples", "#~°C", "#~W", "#~version"];

  // The number of samples that a board trains on, as it said last.
  const samplesOf = (board) => (board.health && board.health.samples) || 0;

  function boardRows(store, boards) {
    return boards.flatMap((board) => {
      const open = store.open.has(board.name);
      const button = el("button", { type: "button", class: "row", "aria-expanded": String(open),
        "data-board": board.name, "data-focus": `board ${board.name}` }, board.name);
      const health = healthOf(store, board);
      const row = { look: ["bad", "worry"][stateOf(board)[3]] || null, cells: [button,
        el("span", { class: "nowrap" }, sign(stateOf(board))[0], stateOf(board)[2]), board.why + progress(health),
        heard(board), board.group, samplesOf(board) ? plain(samplesOf(board)) : "–", degrees(health), watts(health), board.version === undefined ? "–" : String(board.version)] };
      return open ? [row, detailRow(store, board, BOARD_HEADS.length)] : [row];
    });
  }

  // Groups with their boards, worst first.
  function summarize(boards) {
    const groups = new Map();
    for (const board of boards) {
      if (!groups.has(board.group)) groups.set(board.group, []);
      groups.get(board.group).push(board);
    }
    return [...groups].map(([name, members]) => ({ name, members: sortBoards(members) }))
      .sort((a, b) => stateOf(a.members[0])[3] - stateOf(b.members[0])[3]);
  }

  function groupRows(groups) {
    return groups.map(({ name, members }) => {
      const worst = members[0];
      const trouble = members.filter(isTrouble).length;
      return { look: ["bad", "worry"][stateOf(worst)[3]] || null, cells: [
        el("button", { type: "button", class: "row", "aria-expanded": "false", "data-group": name,
          "data-focus": `group ${name}` }, name),
        el("span", { class: "nowrap" }, sign(stateOf(worst))[0], stateOf(worst)[2]),
        `${members.length > 1 ? `${worst.name}: ` : ""}${worst.why}`, plain(members.length), plain(trouble)] };
    });
  }

  const describe = (board) => `${board.name} ${board.group} ${stateOf(board)[2]} ${board.state}`.toLowerCase();

  function showBoards(store) {
    const words = store.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...store.boards.values()];
    const matching = words.length ? all.filter((board) => {
      const text = describe(board);
      return words.every((word) => text.includes(word));
    }) : all;
    const byGroup = all.length > MANY && !words.length;
    const items = byGroup ? summarize(all) : sortBoards(matching);
    const shown = items.slice(0, ROWS);
    const unit = byGroup ? "group" : "board";
    const hiddenItems = items.slice(ROWS);
    const hiddenTrouble = hiddenItems.filter((item) => isTrouble(byGroup ? item.members[0] : item)).length;
    const parts = [words.length ? `${plural(matching.length, "board")} of ${plain(all.length)}`
      : plural(all.length, "board")];
    if (byGroup) parts.push(`shown by group, worst first`);
    if (hiddenItems.length) parts.push(`${plural(hiddenItems.length, unit)} more: `
      + (hiddenTrouble ? `${plain(hiddenTrouble)} of them need a person` : "all well"));
    const text = document.getElementById("boards-text");
    if (text.textContent !== parts.join("; ")) text.textContent = parts.join("; ");
    const key = [shown, [...store.open], [...store.details.keys()], byGroup, store.open.size ? store.state.run.version : 0];
    update("boards-table", stripHeard(key), () => shown.length === 0 ? el("p", { class: "quiet" }, "no board")
      : byGroup ? table("Groups, worst first", ["group", "worst", "why", "#boards", "#need a person"], groupRows(shown))
        : table("Boards, worst first", BOARD_HEADS, boardRows(store, shown)));
  }

  // When a board was heard changes all the time and is shown by showAges.
  function stripHeard(key) {
    return JSON.parse(JSON.stringify(key, (name, value) => (name === "heard_ms" ? value > 0 : value)));
  }

  // --- matrix ---

  function signCell(letter) {
    const known = SIGNS[letter] || UNKNOWN;
    return el("td", { class: letter, title: known[2] }, ...sign(known));
  }

  function showLegend() {
    update("legend", 0, () => Object.values(SIGNS).map((entry) =>
      el("span", {}, el("span", { class: `sign ${entry[1]}`, "aria-hidden": "true" }, entry[0]), ` ${entry[2]}`)));
  }

  function matrixRows(store, columns) {
    const { run, groups } = store.state;
    const sizes = new Map();
    for (const board of store.boards.values())
      if (board.state !== "revoked") sizes.set(board.group, (sizes.get(board.group) || 0) + 1);
    const rows = groups.map((group) => {
      const signs = columns.map((round) => {
        const version = store.versions[round];
        if (version && version.signs) return version.signs[version.groups.get(group.name)] || "n";
        return round === run.round ? group.sign : "n";
      });
      return { name: group.name, size: sizes.get(group.name) || 0, signs, measured: group.measured,
        bad: signs.filter((letter) => letter === "l" || letter === "r").length };
    });
    if (groups.length <= GROUP_ROWS) return rows;
    return rows.filter((row) => row.signs.some((letter) => letter !== "n")).sort((a, b) => b.bad - a.bad);
  }

  // What a group's boards measured last: how good the model is for them.
  function measuredCell({ measured }) {
    if (!measured) return el("td", { class: "total" }, "–");
    const { version, accuracy, loss, samples } = measured;
    const title = `version ${plain(version)} on ${plural(samples, "sample")} of its own: loss ${digits(loss)}`;
    return el("td", { class: "total", title }, accuracy === undefined ? digits(loss) : percent(accuracy));
  }

  function showMatrix(store) {
    const { run } = store.state;
    const columns = [];
    for (let round = Math.max(1, run.round - COLUMNS + 1); round <= run.round; round += 1) columns.push(round);
    const rows = matrixRows(store, columns);
    const shown = rows.slice(0, GROUP_ROWS);
    const place = document.getElementById("matrix");
    const atEnd = place.scrollLeft + place.clientWidth >= place.scrollWidth - 4;
    const changed = update("matrix", [columns[0], shown], () => {
      if (!columns.length) return el("p", { class: "quiet" }, "no round yet");
      const measured = shown.map((row) => row.measured).filter(Boolean);
      const what = measured.some(({ accuracy }) => accuracy !== undefined) ? "accuracy" : "loss";
      const head = el("tr", {}, el("th", { scope: "col" }, "group"), el("th", { scope: "col" }, "accepted"),
        ...(measured.length ? [el("th", { scope: "col", title: "of its boards' own held-out samples" }, what)] : []),
        ...columns.map((round) => el("th", { scope: "col" }, String(round))));
      const body = shown.map((row) => {
        const invited = row.signs.filter((letter) => letter !== "n" && letter !== "w").length;
        const accepted = row.signs.filter((letter) => letter === "a").length;
        return el("tr", { "data-group": row.name }, el("th", { scope: "row", title: row.name }, row.name,
          row.size > 1 ? el("span", { class: "quiet" }, ` ${row.size} boards`) : ""),
        el("td", { class: "total" }, `${accepted} of ${invited}`), ...(measured.length ? [measuredCell(row)] : []),
        ...row.signs.map(signCell));
      });
      return el("table", { class: "matrix" }, el("caption", { class: "hidden" }, "What became of each group's update"),
        el("thead", {}, head), el("tbody", {}, ...body));
    });
    if (changed && atEnd) place.scrollLeft = place.scrollWidth;
    const more = rows.slice(GROUP_ROWS);
    const bad = more.filter((row) => row.bad).length;
    const idle = store.state.groups.length - rows.length;
    const words = [idle ? `${plural(idle, "group")} not invited in these rounds` : "", !more.length ? ""
      : `${plural(more.length, "group")} more; ${bad ? `${plain(bad)} of them missed a round` : "none missed a round"}`];
    document.getElementById("matrix-more").textContent = words.filter(Boolean).join("; ");
  }

  // --- versions ---

  function rulingText({ ruling }) {
    if (!ruling) return "";
    const refused = ruling.kind === "refused";
    return el("span", { title: `it has the weights of version ${ruling.source}: ${ruling.reason}` },
      refused ? "refused by the gate" : `back to version ${ruling.source}`);
  }

  function showVersions(store) {
    const { best, run } = store.state;
    const known = store.versions.filter(Boolean);
    update("versions-text", [best, known.length > 0], () => best ? [
      `Best is version ${best.version} (${scoreText(best)}, ${judge(best.by)}), digest `,
      el("code", {}, best.digest.slice(0, 16)), ". ", el("code", {}, "cairn-aggregator export --version best"),
      " writes it as ONNX; ", el("code", {}, "cairn-aggregator replay"),
      " makes every version again from the stored updates and compares the digests."] : ["No version is measured yet."]);
    const shown = (store.allVersions ? known : known.slice(-VERSION_ROWS)).slice(-500).reverse();
    update("versions-table", [shown, best && best.version, store.allVersions, known.length], () => {
      const rows = shown.map((version) => ({ look: best && best.version === version.version ? "best" : null, cells: [
        String(version.version), version.accuracy === undefined ? "–" : percent(version.accuracy),
        version.loss === undefined ? "–" : digits(version.loss),
        version.version ? `${version.updates ?? "–"} (${plural(version.boards ?? 0, "board")})` : "–",
        rulingText(version), version.made_ms ? moment(version.made_ms, store.state.date_ms) : "–",
        el("code", { title: version.digest }, version.digest.slice(0, 12))] }));
      const made = [table("Versions, newest first", ["#version", "#accuracy", "#loss", "#~updates", "decision", "~made", "digest"],
        rows)];
      if (known.length > VERSION_ROWS)
        made.push(el("button", { type: "button", class: "toggle", id: "all-versions", "data-focus": "all versions" },
          store.allVersions ? "show the newest only" : `show all ${plain(run.version + 1)}`));
      return made;
    });
  }

  // Ages are written each second, into elements that say since when they count.
  function showAges(store, now) {
    for (const item of document.querySelectorAll("[data-since]")) item.textContent = age(now - item.dataset.since);
    for (const item of document.querySelectorAll("[data-heard]")) {
      const board = store.boards.get(item.dataset.heard);
      if (board && board.heard_ms) item.textContent = age(now - board.heard_ms);
    }
  }

  function show(store) {
    const { run, alerts } = store.state;
    const urgent = alerts.filter((alert) => alert.level === "error").length;
    document.title = `${urgent ? `(${urgent}) ` : ""}${run.job}: round ${run.round} of ${run.rounds} – Cairn`;
    document.getElementById("job").textContent = run.job;
    document.getElementById("run-id").textContent = run.id.slice(0, 8);
    document.getElementById("main").hidden = false;
    showAlerts(store);
    showTiles(store);
    showLegend();
    showBoards(store);
    showMatrix(store);
    showVersions(store);
  }

  Object.assign(Cairn, { el, update, table, bytes, duration, age, day, moment, percent, plain, digits, plural, show,
    showAges, showBoards, showVersions });
})();
