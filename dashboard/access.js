// What Streamlit's own markup leaves out for screen readers and keyboards; ours cannot say it elsewhere.
function mend() {
  // groups of the navigation stand between a list and its items: neither is a list to a reader
  for (const one of document.querySelectorAll('[data-testid="stSidebarNavItems"], [data-testid="stSidebarNavItems"] li')) {
    if (one.getAttribute("role") !== "presentation") one.setAttribute("role", "presentation")
  }
  // what scrolls is reached by Tab
  for (const one of document.querySelectorAll('.stCode pre, [data-testid="stMarkdownContainer"]')) {
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

export default function () {
  if (window.ortuneMends) return
  window.ortuneMends = new MutationObserver(soon)
  window.ortuneMends.observe(document.body, { childList: true, subtree: true })
  soon()
}
