// What Streamlit's own markup leaves out for screen readers and keyboards, and the colours of its plots; ours
// cannot say it elsewhere.
function mend() {
  // groups of the navigation stand between a list and its items: neither is a list to a reader
  for (const one of document.querySelectorAll('[data-testid="stSidebarNavItems"], [data-testid="stSidebarNavItems"] li')) {
    if (one.getAttribute("role") !== "presentation") one.setAttribute("role", "presentation")
  }
  // what scrolls is reached by Tab
  const boxes = '.stCode pre, [data-testid="stMarkdownContainer"], [data-testid="stTable"] > div'
  for (const one of document.querySelectorAll(boxes)) {
    const scrolls = one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight
    if (scrolls && one.tabIndex !== 0 && getComputedStyle(one).overflowX !== "visible") one.tabIndex = 0
  }
}

let waits = false
function soon() {
  if (waits) return
  waits = true
  requestAnimationFrame(() => { waits = false; mend() })
}

// Streamlit 1.67 keeps the colours that a plot was first drawn in: on a page that turns dark, its texts would
// stay dark too. What was typed and what is measured outlive a reload; a page that is being opened or drawn, and
// a file that is being sent, do not.
const app = () => document.querySelector('[data-testid="stApp"]')
const paper = () => getComputedStyle(app()).backgroundColor
const LEAVING_MS = 60000  // a page is gone by then, or the visitor has stayed

function followScheme() {
  const drawn = paper()
  let due, leftAt = -Infinity
  function redraw() {
    if (paper() === drawn || !document.querySelector(".js-plotly-plot")) return
    const busy = performance.now() - leftAt < LEAVING_MS || app().dataset.testScriptState !== "notRunning"
      || !document.dispatchEvent(new Event("ortune-reload", { cancelable: true }))  // an upload says no
    if (busy) due = setTimeout(redraw, 500)
    else location.reload()
  }
  addEventListener("beforeunload", () => { leftAt = performance.now() })
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    clearTimeout(due)
    due = setTimeout(redraw, 500)
  })
}

// Streamlit drops what stands behind the point in a field of whole numbers, and does not say so.
function told(event) {
  const field = event.target
  if (event.type === "keydown" && event.key !== "Enter") return
  if (!field.matches?.('[data-testid="stNumberInput"] input') || !field.value) return
  if (!(Number(field.step) >= 1) || Number.isInteger(Number(field.value))) return
  const note = document.querySelector(".ortune-told") || document.body.appendChild(document.createElement("div"))
  const { left, bottom } = field.getBoundingClientRect()
  note.className = "ortune-told"
  note.setAttribute("role", "alert")
  note.textContent = `Whole numbers only: ${field.value} became ${Number.parseInt(field.value, 10)}.`
  note.style.left = `${Math.max(8, Math.min(left, innerWidth - 280))}px`
  note.style.top = `${Math.min(bottom + 4, innerHeight - 48)}px`
  clearTimeout(window.ortuneTold)
  window.ortuneTold = setTimeout(() => note.remove(), 8000)
}

export default function () {
  if (window.ortuneMends) return
  for (const kind of ["focusout", "keydown"]) document.addEventListener(kind, told, true)
  followScheme()
  window.ortuneMends = new MutationObserver(soon)
  window.ortuneMends.observe(document.body, { childList: true, subtree: true })
  soon()
}
