// What a board's sensors said over time: a small curve for each, with its range as text.
"use strict";

(() => {
  const WIDTH = 300;
  const HEIGHT = 40;
  const SVG = "http://www.w3.org/2000/svg";
  const KINDS = [
    ["temperature_c", "temperature", "°C", 1],
    ["power_w", "power", "W", 1],
    ["samples_per_s", "speed", "samples a second", 0],
  ];

  function svg(tag, attributes, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // The points that are known, in pieces: a time without reports is not drawn over.
  function pieces(times, values) {
    const gap = Math.max(300000, (times[times.length - 1] - times[0]) / 20);
    const found = [];
    let last = null;
    values.forEach((value, i) => {
      if (value === null) return;
      if (last === null || times[i] - last > gap) found.push([]);
      found[found.length - 1].push([times[i], value]);
      last = times[i];
    });
    return found;
  }

  function draw(times, values, label) {
    const known = values.filter((value) => value !== null);
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const span = times[times.length - 1] - times[0] || 1;
    const x = (time) => (WIDTH * (time - times[0]) / span).toFixed(1);
    const y = (value) => (most > least ? HEIGHT - 2 - (HEIGHT - 4) * (value - least) / (most - least) : HEIGHT / 2).toFixed(1);
    const lines = pieces(times, values).map((piece) => svg("polyline",
      { points: piece.map(([time, value]) => `${x(time)},${y(value)}`).join(" ") }));
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label,
      class: "curve" }, ...lines);
  }

  // Pairs for the detail row of a board: the name of a sensor, and its curve with its range.
  Cairn.sensorCurves = (sensors) => {
    if (!sensors || sensors.at_ms.length < 2) return [];
    const times = sensors.at_ms;
    const span = Cairn.duration(times[times.length - 1] - times[0]);
    return KINDS.filter(([key]) => sensors[key].some((value) => value !== null)).map(([key, name, unit, decimals]) => {
      const known = sensors[key].filter((value) => value !== null);
      const text = `${Math.min(...known).toFixed(decimals)} to ${Math.max(...known).toFixed(decimals)} ${unit} in ${span}`;
      return [`${name} so far`, Cairn.el("span", {}, draw(times, sensors[key], `${name}: ${text}`), text)];
    });
  };
})();
