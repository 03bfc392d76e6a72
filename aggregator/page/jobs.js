// The jobs of the gateway, if it has several. A report has none.
"use strict";

(() => {
  const LOOKS = { failed: "worry", stopped: "none" };

  Cairn.showJobs = ({ jobs }) => {
    document.getElementById("jobs").hidden = jobs.length < 2;
    const rows = jobs.map((job) => ({ look: LOOKS[job.state] || null,
      cells: [job.name, `${job.priority}${job.ahead ? ", first" : ""}`, job.text, job.groups.join(" ") || "–"] }));
    Cairn.update("jobs-table", [rows.map((row) => row.cells)],
      () => Cairn.table("Jobs of this gateway", ["job", "#priority", "how it stands", "~groups"], rows));
  };
})();
