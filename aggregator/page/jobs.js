// The jobs of the gateway, if it has several. A report has none. A click on a job shows the page for it.
"use strict";

(() => {
  const LOOKS = { failed: "worry", stopped: "none" };

  // The first job is that of the gateway's profile; its page has no name in its address. A job without a version
  // has no run yet.
  function link(job, first, shown) {
    if (job.version === undefined && (job.state === "active" || job.state === "held")) return job.name;
    return Cairn.el("a", { href: first ? "#" : `#job=${job.name}`, "aria-current": shown ? "true" : null,
      "data-focus": `job ${job.name}` }, job.name);
  }

  Cairn.showJobs = ({ jobs, job: shown }) => {
    document.getElementById("jobs").hidden = jobs.length < 2;
    const rows = jobs.map((job, i) => ({ look: LOOKS[job.state] || null,
      cells: [link(job, i === 0, shown ? job.name === shown : i === 0), `${job.priority}${job.ahead ? ", first" : ""}`,
        job.text, job.groups.join(" ") || "–"] }));
    const key = jobs.map(({ name, priority, ahead, text, groups, state }) => [name, priority, ahead, text, groups, state]);
    Cairn.update("jobs-table", [key, shown],
      () => Cairn.table("Jobs of this gateway", ["job", "#priority", "how it stands", "~groups"], rows));
  };
})();
