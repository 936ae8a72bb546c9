// What the page does beyond HTML: the reader's own time beside UTC, and plots. The page is whole without it.
"use strict";

(() => {
  const two = (number) => String(number).padStart(2, "0");

  // "14:05:09 (13:05:09 UTC)": the date is said where it is another one than today's.
  function showLocalTimes(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.getTime()) || element.dataset.local) continue;
      element.dataset.local = "yes";
      const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
      const local = `${day} ${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
      const utc = document.createElement("span");
      utc.className = "utc";
      utc.textContent = `(${element.textContent})`;
      element.replaceChildren(`${local} `, utc);
    }
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // A figure with data-readings has the address of its points: [[times in s], [least], [mean], [greatest]].
  async function showPlot(figure) {
    const place = figure.querySelector(".plot");
    const response = await fetch(figure.dataset.readings, { headers: { accept: "application/json" } });
    if (!response.ok) {
      place.textContent = "The plot cannot be loaded; the table below has the newest values.";
      return;
    }
    const points = await response.json();
    if (points[0].length === 0) {
      place.textContent = "No numbers in this time.";
      return;
    }
    const format = (moment_s, span_s) => {
      const moment = new Date(moment_s * 1000);
      const day = `${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
      return span_s > 2 * 86400 ? day : `${two(moment.getHours())}:${two(moment.getMinutes())}`;
    };
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
    const line = { stroke: colour("--accent"), width: 2, points: { show: points[0].length < 200 } };
    const bound = { stroke: colour("--soft"), width: 1, points: { show: false } };
    place.replaceChildren();
    const width = () => Math.max(280, place.clientWidth);
    const plot = new uPlot(
      {
        width: width(),
        height: 240,
        axes: [{ ...axis, values: (_, at) => at.map((each) => format(each, at[at.length - 1] - at[0])) }, axis],
        series: [{}, { label: "least", ...bound }, { label: "mean", ...line }, { label: "greatest", ...bound }],
      },
      points,
      place,
    );
    new ResizeObserver(() => plot.setSize({ width: width(), height: 240 })).observe(place);
  }

  function begin(root) {
    showLocalTimes(root);
    for (const figure of root.querySelectorAll("figure[data-readings]")) showPlot(figure);
  }

  begin(document);
  document.body.addEventListener("htmx:load", (event) => begin(event.detail.elt));
})();
