
// Draws the figures in the colours of the theme, anew when it changes, and on paper in those of paper.
(() => {
  "use strict";
  const stored = document.getElementById("figures").textContent;
  const TEXT = /#000037/g, PAGE = /#000038/g; // what stands in a figure for the colours of the page
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const draw = (isDark) => {
    if (!window.Plotly) return;
    const text = isDark ? "#F1F5F9" : "#0F172A", page = isDark ? "#0F172A" : "#FFFFFF";
    const figures = JSON.parse(stored.replace(TEXT, text).replace(PAGE, page));
    figures.forEach((figure, number) => {
      const place = document.getElementById(`plot-${number}`);
      delete figure.layout.width;
      figure.layout.autosize = true;
      Plotly.react(place, figure.data, figure.layout, { displaylogo: false, responsive: true });
    });
  };
  const unfold = (open) => {
    for (const one of document.querySelectorAll("details")) {
      if (open) one.dataset.was = one.open;
      one.open = open || one.dataset.was === "true";
    }
  };
  draw(dark.matches);
  dark.addEventListener("change", (event) => draw(event.matches));
  window.addEventListener("beforeprint", () => { unfold(true); draw(false); });
  window.addEventListener("afterprint", () => { unfold(false); draw(dark.matches); });
})();
