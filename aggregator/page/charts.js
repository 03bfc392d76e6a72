// The charts of the page, each with a table of the same numbers. Without Chart.js the tables are shown at once.
"use strict";

(() => {
  const { bytes, digits, duration, percent, plain, table, update } = Cairn;
  const POINTS = 400; // most points of a line
  const BARS = 10; // rounds in the chart of times
  const COST_BARS = 30; // rounds in the chart of bytes
  const charts = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // Takes every k-th element, and always the last one.
  function thin(list) {
    const step = Math.ceil(list.length / POINTS);
    return list.filter((_, i) => (list.length - 1 - i) % step === 0);
  }

  const scoredBy = (version, by) => (version.by === by ? version : by === "boards"
    && version.boards_loss !== undefined ? { accuracy: version.boards_accuracy, loss: version.boards_loss } : {});

  // --- what is drawn ---

  function learning(store) {
    const versions = thin(store.versions.filter((version) => version && version.loss !== undefined));
    const measure = versions.some((version) => version.accuracy !== undefined) ? "accuracy" : "loss";
    const best = store.state.best ? store.state.best.version : -1;
    const line = (name, by, key, look) => ({
      label: name, data: versions.map((version) => scoredBy(version, by)[key] ?? null), spanGaps: true, borderWidth: 2,
      borderColor: colour(look.colour), backgroundColor: colour(look.colour), borderDash: look.dash || [],
      pointRadius: versions.map((version) => (look.best && version.version === best ? 7 : versions.length > 60 ? 0 : 3)),
      pointStyle: versions.map((version) => (look.best && version.version === best ? "star" : look.point)),
      yAxisID: key === measure ? "y" : "loss",
    });
    const central = versions.some((version) => version.by === "central");
    const sets = [];
    if (central) sets.push(line(`${measure}, gateway's set`, "central", measure, { colour: "blue", point: "circle", best: true }));
    sets.push(line(`${measure}, median of the boards`, "boards", measure,
      { colour: "orange", point: "rect", dash: [6, 3], best: !central }));
    if (measure === "accuracy")
      sets.push(line("loss", central ? "central" : "boards", "loss", { colour: "purple", point: "triangle", dash: [2, 2] }));
    return { versions, measure, sets: sets.filter((set) => set.data.some((value) => value !== null)) };
  }

  function axis(title, extra) {
    return { title: { display: Boolean(title), text: title, color: colour("quiet") }, ticks: { color: colour("quiet") },
      grid: { color: colour("line") }, ...extra };
  }

  function learningChart(store) {
    const { versions, measure, sets } = learning(store);
    const scales = { x: axis("version"), y: axis(measure) };
    if (measure === "accuracy") {
      const values = sets.filter((set) => set.yAxisID === "y").flatMap((set) => set.data).filter((value) => value !== null);
      scales.y.min = Math.max(0, Math.floor(10 * Math.min(...values) - 0.1) / 10);
      scales.y.max = Math.min(1, Math.ceil(10 * Math.max(...values) + 0.1) / 10);
      scales.y.ticks.callback = (value) => `${Math.round(100 * value)} %`;
      scales.loss = axis("loss", { position: "right", grid: { display: false } });
    }
    return { type: "line", data: { labels: versions.map((version) => version.version), datasets: sets },
      options: options({ scales }) };
  }

  // The parts of a round's time; null where a date is missing or the clock was set back.
  function parts(version) {
    const dates = [version.opened_ms, version.first_ms, version.last_ms, version.made_ms];
    if (dates.some((date, i) => !date || (i && date < dates[i - 1]))) return null;
    return dates.slice(1).map((date, i) => date - dates[i]);
  }

  const PARTS = [["training and first update", "blue"], ["further updates", "orange"], ["merge and store", "green"]];
  const lastRounds = (store, count) => store.versions.filter((version) => version && version.version).slice(-count);

  function roundsChart(store) {
    const rounds = lastRounds(store, BARS).filter(parts);
    const datasets = PARTS.map(([label, look], i) => ({ label, backgroundColor: colour(look), borderWidth: 1,
      borderColor: colour("card"), pointStyle: "rect", data: rounds.map((version) => parts(version)[i] / 1000) }));
    return { type: "bar", data: { labels: rounds.map((version) => version.version), datasets },
      options: options({ indexAxis: "y", scales: { x: axis("seconds", { stacked: true }), y: axis("round", { stacked: true }) } }) };
  }

  function costs(store, count) {
    const all = store.versions;
    return lastRounds(store, count).filter((version) => all[version.version - 1]).map((version) => ({ version,
      up: version.bytes_in - all[version.version - 1].bytes_in, down: version.bytes_out - all[version.version - 1].bytes_out }));
  }

  function costChart(store) {
    const rows = costs(store, COST_BARS);
    const set = (label, look, key) => ({ label, pointStyle: "rect", backgroundColor: colour(look), data: rows.map((row) => row[key]) });
    const scales = { x: axis("round"), y: axis("") };
    scales.y.ticks.callback = (value) => bytes(value);
    return { type: "bar", data: { labels: rows.map((row) => row.version.version),
      datasets: [set("from boards", "blue", "up"), set("to boards", "orange", "down")] }, options: options({ scales }) };
  }

  function options(more) {
    return { responsive: true, maintainAspectRatio: false, animation: false, normalized: true,
      interaction: { mode: "index", intersect: false },
      plugins: { legend: { position: "bottom", labels: { color: colour("text"), usePointStyle: true, boxWidth: 8, boxHeight: 8 } } },
      ...more };
  }

  // --- the same as tables ---

  function learningTable(store) {
    const { versions, measure } = learning(store);
    const show = (value) => (value === undefined || value === null ? "–" : measure === "accuracy" ? percent(value) : digits(value));
    return table("Score of each version", ["#version", `#${measure}, gateway's set`, `#${measure}, boards`, "#loss"],
      versions.slice().reverse().map((version) => ({ cells: [String(version.version),
        show(scoredBy(version, "central")[measure]), show(scoredBy(version, "boards")[measure]), digits(version.loss)] })));
  }

  function roundsTable(store) {
    const rows = lastRounds(store, 100).reverse().map((version) => {
      const times = parts(version);
      const wait = times && version.updates > 1 && times[1] ? `${version.last} (+${duration(times[1])})` : version.last || "–";
      return { cells: [String(version.version), ...(times ? times.map(duration) : ["–", "–", "–"]), wait] };
    });
    return table("Time of each round", ["#round", ...PARTS.map(([name]) => `#${name}`), "last"], rows);
  }

  function costTable(store) {
    return table("Bytes of each round", ["#round", "#from boards", "#to boards", "#updates' bytes", "#step's bytes", "sent as"],
      costs(store, 100).reverse().map(({ version, up, down }) => ({ cells: [String(version.version), bytes(up), bytes(down),
        bytes(version.update_bytes || 0), bytes(version.delta_size), version.encoding || "–"] })));
  }

  // --- texts ---

  function learningText({ state }) {
    const { newest, best } = state;
    if (!newest || !best) return "No version has been measured yet.";
    if (newest.version === 0) return state.run.version ? "Only the initial model is measured so far." : "Not yet: no round is done.";
    const since = newest.version - best.version;
    return since > 0 ? `The best version is ${best.version}; the ${since === 1 ? "one" : plain(since)} after it ${
      since === 1 ? "is" : "are"} not better.` : "Yes: the newest measured version is the best.";
  }

  function roundsText(store) {
    const { end } = store.state;
    if (!lastRounds(store, 1).length) return "No round is done yet.";
    const times = lastRounds(store, BARS).filter((version) => parts(version) && version.updates > 1);
    const counts = new Map();
    for (const version of times) counts.set(version.last, (counts.get(version.last) || 0) + 1);
    const slowest = [...counts].sort((a, b) => b[1] - a[1])[0];
    const pace = end.round_ms ? `${duration(end.round_ms)} from one round to the next.` : "";
    return slowest && times.length >= 3 && slowest[1] > times.length / 2
      ? `${pace} Mostly ${slowest[0]} is last (${slowest[1]} of ${times.length}).` : pace;
  }

  // How versions go down: the encoding of the newest one that has one and, where the links decide, since when and why.
  function downText({ state, versions }) {
    const last = versions.filter((version) => version && version.encoding).pop();
    if (!last) return "";
    const size = `Versions go down as ${last.encoding}, ${bytes(last.delta_size)} for version ${last.version}`;
    const { downlink } = state;
    if (!downlink) return `${size}. `;
    return `${size}, since version ${downlink.since}: ${downlink.link_bps
      ? `the slowest quarter of the links takes ${bytes(downlink.link_bps / 8)} a second` : "no group has measured its link"}. `;
  }

  function costText(store) {
    const { state } = store;
    const { bytes: cost, disk } = state;
    const wire = cost.in.wire ? `${bytes(cost.in.wire + cost.out.wire)} on the wire with all headers. ` : "";
    return `${costs(store, 1).length ? "" : "No round is done yet. "}${wire}${downText(store)}${disk ? `The gateway's disk has ${bytes(disk.free)} free.` : ""}`;
  }

  // --- drawing ---

  const KINDS = [
    { id: "learning", chart: learningChart, table: learningTable, text: learningText },
    { id: "rounds", chart: roundsChart, table: roundsTable, text: roundsText },
    { id: "cost", chart: costChart, table: costTable, text: costText },
  ];

  function draw(kind, store) {
    if (typeof Chart === "undefined") return;
    const made = kind.chart(store);
    const empty = made.data.labels.length === 0;
    document.querySelector(`#${kind.id} .chart`).hidden = empty;
    if (empty) return;
    const chart = charts.get(kind.id);
    if (chart) {
      chart.data = made.data;
      chart.options = made.options;
      chart.update("none");
    } else {
      charts.set(kind.id, new Chart(document.getElementById(`${kind.id}-chart`), made));
    }
  }

  // Draws what changed. force: draws all again, as after a change of the colours.
  function showCharts(store, force) {
    const known = store.versions.filter(Boolean);
    const last = known.slice(-3);
    for (const kind of KINDS) {
      const text = document.getElementById(`${kind.id}-text`);
      const words = kind.text(store);
      if (text.textContent !== words) text.textContent = words;
      const place = document.getElementById(`${kind.id}-table`);
      const key = [known.length, last, store.state.best, !place.hidden];
      const changed = update(`${kind.id}-table`, key, () => (place.hidden ? [] : kind.table(store)));
      if (changed || force) draw(kind, store);
    }
  }

  function toggle(button, store) {
    const place = document.getElementById(button.getAttribute("aria-controls"));
    place.hidden = !place.hidden;
    button.setAttribute("aria-expanded", String(!place.hidden));
    button.textContent = place.hidden ? "show as table" : "hide the table";
    showCharts(store, false);
  }

  if (typeof Chart === "undefined") {
    document.body.classList.add("plain");
    for (const kind of KINDS) document.getElementById(`${kind.id}-table`).hidden = false;
    for (const button of document.querySelectorAll("figure .toggle")) button.hidden = true;
  }

  Object.assign(Cairn, { showCharts, toggle });
})();
