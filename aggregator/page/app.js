// Gets the data of the page: from the gateway, again and again, or from the page itself in a report.
"use strict";

(() => {
  const POLL_MS = 2000;
  const HIDDEN_MS = 30000; // while nobody looks at the page
  const TIMEOUT_MS = 5000;
  const PIECES = 20; // answers about versions in one go
  const HISTORY = 2000; // newest versions that are asked for
  const EVENTS = 200; // newest events that are kept
  const TOKEN = "cairn-token";

  const store = {
    state: null, boards: new Map(), versions: [], seq: 0, filter: "", open: new Set(), details: new Map(),
    allVersions: false, live: true, events: [], seen: 0, jobs: [], job: null,
  };
  let versionsKey = ""; // what the state said when all versions were here
  const tags = new Map(); // ETag and answer of each address
  let seenAt = 0; // when the gateway last answered, by this machine's clock
  let shift = 0; // the gateway's clock minus this machine's
  let timer = null;
  let busy = false;
  let crowded = false; // the gateway answered, but only that others ask too much
  let again = false; // poll at once after this answer

  const now = () => performance.now();
  const text = (id, words) => {
    const place = document.getElementById(id);
    if (place.textContent !== words) place.textContent = words;
  };

  // --- taking answers ---

  function takeState(state) {
    const previous = store.state;
    if (previous && previous.run.id !== state.run.id) {
      store.versions = [];
      store.boards.clear();
      store.details.clear();
      store.events = [];
      store.seen = 0;
      versionsKey = "";
    }
    if (state.boards_all !== false) store.boards.clear();
    for (const board of state.boards) store.boards.set(board.name, board);
    store.seq = state.seq || 0;
    store.state = state;
    shift = state.clock_ms - now();
  }

  function takeVersions(answer) {
    const groups = new Map(answer.groups.map((name, i) => [name, i]));
    for (const version of answer.versions) store.versions[version.version] = { ...version, groups };
  }

  // --- asking the gateway ---

  class Refused extends Error {}
  class Missing extends Error {}
  class Busy extends Error {}

  // Gets an answer. What did not change since the last time comes from memory.
  async function get(path) {
    const headers = {};
    const token = sessionStorage.getItem(TOKEN);
    const known = tags.get(path);
    if (token) headers.Authorization = `Bearer ${token}`;
    if (known) headers["If-None-Match"] = known.tag;
    const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (answer.status === 401) throw new Refused();
    if (answer.status === 304 && known) return known.value;
    if (answer.status === 404) throw new Missing(path);
    if (answer.status === 429) throw new Busy(path);
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    const value = await answer.json();
    if (value.v !== 1) throw new Error(`${path}: format ${value.v}; this page reads 1. Load it again.`);
    const tag = answer.headers.get("ETag");
    for (const old of tags.keys()) if (old.split("?")[0] === path.split("?")[0]) tags.delete(old);
    if (tag) tags.set(path, { tag, value });
    return value;
  }

  // Gets versions that are new, and the newest two, which may have been measured meanwhile.
  async function getVersions(job) {
    const { run, newest } = store.state;
    const key = JSON.stringify([run.id, run.version, run.accepted, newest]);
    if (key === versionsKey) return;
    let from = Math.max(0, store.versions.length - 2, run.version - HISTORY);
    for (let i = 0; i < PIECES; i += 1) {
      const answer = await get(`${job ? `/v1/job-versions/${job}` : "/v1/versions"}?from=${from}`);
      takeVersions(answer);
      if (!answer.more) {
        versionsKey = key;
        return;
      }
      from = answer.next;
    }
  }

  async function getDetails() {
    for (const name of store.open) {
      if (!store.boards.has(name)) store.open.delete(name);
      else store.details.set(name, await get(`/v1/board/${encodeURIComponent(name)}`));
    }
  }

  // Gets events that are new: those of all jobs, or of the job that the page shows. A gateway that was started
  // elsewhere may begin with lower numbers.
  async function getEvents(job) {
    const newest = store.state.events || 0;
    if (newest === store.seen) return;
    if (newest < store.seen) [store.events, store.seen] = [[], 0];
    const answer = await get(`${job ? `/v1/job-events/${job}` : "/v1/events"}?from=${store.seen ? store.seen + 1 : 0}`);
    store.events = [...store.events, ...answer.events].slice(-EVENTS);
    store.seen = answer.next - 1;
  }

  async function getJobs() {
    store.jobs = store.state.jobs > 1 ? (await get("/v1/jobs")).jobs : [];
  }

  // Gets all about the job that the page shows: that of the gateway's profile, or another one, of which the gateway
  // gives all boards each time.
  async function ask() {
    const { job } = store;
    if (job) {
      takeState(await get(`/v1/job-state/${job}`));
      await getVersions(job);
      await getEvents(job);
    } else {
      takeState(await get(`/v1/state${store.seq ? `?since=${store.seq}` : ""}`));
      await getVersions();
      await getDetails();
      await getEvents();
    }
    await getJobs();
  }

  // The address of the page names the job: #job=NAME.
  function jobOfAddress() {
    const found = location.hash.match(/^#job=([A-Za-z0-9._-]{1,63})$/);
    return found ? found[1] : null;
  }

  function showJob(job) {
    if (job === store.job) return;
    store.job = job;
    store.seq = 0;
    again = true;
    poll();
  }

  function login(shown) {
    document.getElementById("login").hidden = !shown;
    if (!shown) return;
    text("login-error", sessionStorage.getItem(TOKEN) ? "The gateway refused this token." : "");
    document.getElementById("main").hidden = true;
    text("link", "locked");
    document.getElementById("token").focus();
  }

  async function poll() {
    if (busy) return;
    busy = true;
    again = false;
    clearTimeout(timer);
    try {
      await ask();
      seenAt = now();
      crowded = false;
      login(false);
      document.body.classList.remove("stale");
      show(false);
    } catch (error) {
      if (error instanceof Refused) {
        login(true);
        busy = false;
        return; // goes on when a token is given
      }
      if (error instanceof Missing && store.job) location.hash = "";
      else document.body.classList.add("stale");
      crowded = error instanceof Busy;
    }
    busy = false;
    showLink();
    const pause = document.hidden ? HIDDEN_MS : POLL_MS;
    timer = setTimeout(poll, again ? 0 : pause);
  }

  // --- showing ---

  function show(force) {
    Cairn.show(store);
    Cairn.showCharts(store, force);
    Cairn.showInventory(store);
    Cairn.showEvents(store);
    Cairn.showJobs(store);
    Cairn.showAges(store, now() + shift);
  }

  // Says whether the page is up to date. The text changes rarely, as it is read aloud when it does.
  function showLink() {
    const link = document.getElementById("link");
    const stale = document.body.classList.contains("stale");
    link.className = stale ? "link gone" : "link live";
    if (!stale && !store.state) return; // the address named a job that there is not
    if (!stale) text("link", store.state.run.running || store.job ? "live" : "the gateway answers; the run does not go on");
    else {
      const said = crowded ? "The gateway answers too many others" : "The gateway does not answer";
      text("link", seenAt ? `${said}; last seen ${Cairn.age(now() - seenAt)}` : said);
    }
  }

  function tick() {
    if (!store.state || document.hidden) return;
    if (document.body.classList.contains("stale")) showLink();
    else Cairn.showAges(store, now() + shift);
  }

  function showReport(data) {
    store.live = false;
    takeState(data.state);
    for (const answer of data.versions) takeVersions(answer);
    shift = data.state.clock_ms - now();
    const link = document.getElementById("link");
    link.className = "link";
    link.removeAttribute("role");
    text("link", `report of ${Cairn.day(data.state.date_ms)}`);
    document.getElementById("settings").hidden = !data.settings;
    text("settings-text", data.settings || "");
    text("made", `Made by cairn-aggregator report ${data.program || ""}. Ages are those at the time of the report.`);
    show(false);
    Cairn.showAges(store, data.state.clock_ms);
  }

  // --- what a person does ---

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || !store.state) return;
    if (button.id === "all-versions") {
      store.allVersions = !store.allVersions;
      Cairn.showVersions(store);
    } else if (button.classList.contains("toggle")) {
      Cairn.toggle(button, store);
    } else if (button.dataset.board) {
      const name = button.dataset.board;
      if (!store.open.delete(name)) store.open.add(name);
      Cairn.showBoards(store);
      if (store.live) poll();
    } else if (button.dataset.group) {
      const filter = document.getElementById("filter");
      filter.value = store.filter = button.dataset.group;
      Cairn.showBoards(store);
      Cairn.showInventory(store);
      filter.focus();
    }
    Cairn.showAges(store, store.live ? now() + shift : store.state.clock_ms);
  });

  document.getElementById("filter").addEventListener("input", (event) => {
    store.filter = event.target.value;
    if (store.state) Cairn.showBoards(store);
    if (store.state) Cairn.showInventory(store);
    if (store.state) Cairn.showAges(store, store.live ? now() + shift : store.state.clock_ms);
  });

  document.getElementById("alarms").addEventListener("change", () => {
    if (store.state) Cairn.showEvents(store);
  });

  document.getElementById("login").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = document.getElementById("token");
    sessionStorage.setItem(TOKEN, field.value.trim());
    field.value = "";
    poll();
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (store.state) Cairn.showCharts(store, true);
  });

  const data = document.getElementById("data");
  if (data) {
    showReport(JSON.parse(data.textContent));
  } else {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) poll();
    });
    // Other parts of the page have addresses, too. They change no job.
    addEventListener("hashchange", () => {
      if (jobOfAddress() || !location.hash) showJob(jobOfAddress());
    });
    store.job = jobOfAddress();
    setInterval(tick, 1000);
    poll();
  }
})();
