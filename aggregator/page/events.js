// What happened at the gateway, newest first. A report has no events.
"use strict";

(() => {
  const SHOWN = 40; // newest events on the page
  const SIGNS = {
    alarm: ["!", "worry", "needs a person"],
    other: ["·", "none", "event"],
  };

  const words = (kind) => kind.replace(/_/g, " ");

  Cairn.showEvents = ({ state, events, job }) => {
    const section = document.getElementById("events");
    section.hidden = !events.length;
    const wanted = document.getElementById("alarms").checked ? events.filter((event) => event.alarm) : events;
    const shown = wanted.slice(-SHOWN).reverse();
    Cairn.update("events-list", [shown, job], () => Cairn.el("ol", { class: "events" }, ...shown.map((event) => {
      const [mark, look, said] = SIGNS[event.alarm ? "alarm" : "other"];
      return Cairn.el("li", {}, Cairn.el("span", { class: `sign ${look}`, "aria-hidden": "true" }, mark),
        Cairn.el("span", { class: "hidden" }, said),
        Cairn.el("time", { datetime: new Date(event.date_ms).toISOString() }, Cairn.moment(event.date_ms, state.date_ms)),
        Cairn.el("strong", {}, words(event.kind)),
        event.job && event.job !== event.subject && !job ? Cairn.el("span", {}, ` (job ${event.job})`) : null,
        event.subject ? Cairn.el("span", {}, ` ${event.subject}:`) : ":",
        Cairn.el("span", {}, ` ${event.text}`));
    })));
  };
})();
