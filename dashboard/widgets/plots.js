// Plotly's camera saves in the one format of its settings: we set the format, and the page's colour behind the
// picture, press the camera, and put both back. Plotly copies them before it draws.
function save(data, format) {
  const plot = document.querySelector(`.${data.box} .js-plotly-plot`)
  const camera = plot && plot.querySelector('.modebar-btn[data-title^="Download plot"]')
  if (!camera) return "The plot is not drawn yet."
  const context = plot._context, layout = plot.layout
  const options = context.toImageButtonOptions, behind = layout.paper_bgcolor
  const page = document.querySelector('[data-testid="stApp"]')
  try {
    context.toImageButtonOptions = { format, filename: data.name, scale: format === "png" ? 2 : 1 }
    layout.paper_bgcolor = getComputedStyle(page).backgroundColor
    camera.click()
  } finally {
    context.toImageButtonOptions = options
    layout.paper_bgcolor = behind
  }
  return ""
}

export default function (component) {
  const { parentElement, data } = component
  const state = parentElement.querySelector(".state")
  for (const button of parentElement.querySelectorAll("button")) {
    button.onclick = () => { state.textContent = save(data, button.dataset.format) }
  }
}
