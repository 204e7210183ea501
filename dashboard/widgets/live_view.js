// What is still measured, drawn in place as the server tells it: no part of the page is run again for it.
// One connection per stream and tab, however many places show it; none while the tab is hidden.
const SILENT_MS = 6000  // a first event that has not come by then is held back on its way: ask instead
const LOST_MS = 25000  // the server says every ten seconds that the connection stands
const POLL_MS = 2000, AGAIN_MS = 10000, AGING_MS = 20000
const feeds = new Map(), views = new WeakMap()
const GONE = { ended: true, state: "ended" }

class Feed {
  constructor(url, every) {
    Object.assign(this, { url, every, views: new Set(), event: null, how: "", turn: 0, blocked: false })
    this.turned = () => document.hidden ? this.close() : this.open()
    document.addEventListener("visibilitychange", this.turned)
    if (!document.hidden) this.open()
  }
  open() {
    this.close()
    if (this.event?.ended) return
    if (this.every || this.blocked || !window.EventSource) { this.ask(); return }
    const stream = this.stream = new EventSource(this.url)  // comes back by itself when the connection breaks
    stream.onmessage = said => { this.expect(LOST_MS); this.take(JSON.parse(said.data), "") }
    stream.addEventListener("alive", () => this.expect(LOST_MS))
    stream.onerror = () => { if (stream.readyState === EventSource.CLOSED) this.ask() }
    this.expect(SILENT_MS)
  }
  close() {
    this.turn += 1
    clearTimeout(this.alarm)
    this.stream?.close()
    this.stream = null
  }
  expect(ms) {
    clearTimeout(this.alarm)
    this.alarm = setTimeout(() => {
      if (ms === LOST_MS) { this.open(); return }
      this.blocked = true
      this.ask()
    }, ms)
  }
  async ask() {
    this.close()
    let failed = false
    for (const turn = this.turn; turn === this.turn;) {
      try {
        const answer = await fetch(`${this.url}&poll=1`, { cache: "no-store", signal: AbortSignal.timeout(8000) })
        if (turn !== this.turn) return
        if (answer.status === 403 || answer.status === 404) { this.take(GONE, ""); return }
        if (!answer.ok) throw new Error(answer.status)
        if (failed && !this.every) { this.blocked = false; this.open(); return }
        this.take(await answer.json(), this.every ? "" : "asks")
        if (this.event.ended) return
      } catch (_) {
        if (turn !== this.turn) return
        failed = true
        this.take(this.event, "lost")
      }
      await new Promise(after => setTimeout(after, this.every || POLL_MS))
    }
  }
  take(event, how) {
    this.event = event
    this.how = how
    if (event?.ended) this.close()
    for (const view of this.views) view.show()
  }
  leave(view) {
    this.views.delete(view)
    if (this.views.size) return
    this.close()
    document.removeEventListener("visibilitychange", this.turned)
    feeds.delete(this.url)
  }
}

// --- text

function make(parent, tag, name, text) {
  const one = document.createElement(tag)
  if (name) one.className = name
  if (text !== undefined) words(one, text)
  parent.append(one)
  return one
}

function words(node, text) {
  node.replaceChildren(...text.split("`").map((part, i) => {
    if (i % 2 === 0) return document.createTextNode(part)
    const code = document.createElement("code")
    code.textContent = part
    return code
  }))
}

function line(parent, one) {
  const name = one.color ? `ol-badge ol-${one.color}` : one.small ? "ol-small" : one.strong ? "ol-strong" : ""
  const node = make(parent, one.color ? "span" : "p", name, one.text)
  if (!one.icon) return
  const icon = document.createElement("span")
  icon.className = "ol-icon"
  icon.setAttribute("aria-hidden", "true")
  icon.dataset.testid = "stIconMaterial"  // its text is the name of a picture
  icon.textContent = one.icon
  node.prepend(icon)
}

// The age of a line after its words, `more` seconds after it came.
function aged(one, more) {
  if (one.age_s === undefined) return one
  const minutes = Math.floor((one.age_s + more) / 60)
  const age = minutes < 1 ? "less than a minute" : minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`
  return { ...one, text: `${one.text} · ${age} old` }
}

// --- pictures: the places of what the server gives as numbers and words

const SVG = "http://www.w3.org/2000/svg", CHAR_PX = 6.6, ROW_PX = 42
const COLORS = 6

function draw(parent, tag, facts, text) {
  const one = document.createElementNS(SVG, tag)
  for (const [name, value] of Object.entries(facts)) one.setAttribute(name, value)
  if (text !== undefined) one.textContent = text
  parent.append(one)
  return one
}

const cut = (text, px) => text.length * CHAR_PX <= px ? text : `${text.slice(0, Math.max(1, Math.floor(px / CHAR_PX) - 1))}…`

function scale(axis, from, to) {
  const at = axis.log ? Math.log : value => value
  const [low, high] = axis.range.map(at)
  return value => from + (to - from) * (at(value) - low) / (high - low || 1)
}

// Ticks that have room beside each other, counted from the one at 1 where there is one.
function roomy(axis, place) {
  const wide = Math.max(...axis.ticks.map(([, text]) => text.length)) * CHAR_PX + 8
  const one = Math.max(0, axis.ticks.findIndex(([value]) => value === 1))
  for (let every = 1; every < axis.ticks.length; every += 1) {
    const kept = axis.ticks.filter((_, i) => (i - one) % every === 0)
    if (kept.every(([value], i) => !i || Math.abs(place(value) - place(kept[i - 1][0])) >= wide)) return kept
  }
  return axis.ticks.slice(one, one + 1)
}

function title(svg, text, width, y) {
  if (text.length * CHAR_PX <= width) { draw(svg, "text", { x: width / 2, y, "text-anchor": "middle" }, text); return }
  const parts = text.split(" · ")
  const lines = parts.length < 3 ? [text] : [`${parts[0]} · ${parts.at(-1)}`, parts.slice(1, -1).join(" · ")]
  lines.forEach((one, i) => draw(svg, "text", { x: width / 2, y: y + 16 * i, "text-anchor": "middle" }, cut(one, width)))
}

function forest(svg, picture, width) {
  const x = scale(picture.x, 12, width - 12), foot = 12 + ROW_PX * picture.rows.length
  const band = [1 / (1 + picture.margin), 1 + picture.margin].map(x)
  draw(svg, "rect", { x: band[0], y: 4, width: band[1] - band[0], height: foot - 4, class: "ol-band" })
  draw(svg, "line", { x1: x(1), x2: x(1), y1: 4, y2: foot, class: "ol-level" })
  for (const [value, text] of roomy(picture.x, x)) {
    draw(svg, "line", { x1: x(value), x2: x(value), y1: 4, y2: foot, class: "ol-grid" })
    draw(svg, "text", { x: Math.min(width - 14, Math.max(14, x(value))), y: foot + 16, "text-anchor": "middle" }, text)
  }
  title(svg, picture.x.title, width, foot + 38)
  picture.rows.forEach((row, i) => {
    const y = 34 + ROW_PX * i, said = row.short.length * CHAR_PX
    draw(svg, "text", { x: 4, y: y - 14, class: "ol-over" }, cut(row.label, width - said - 24))
    if (row.short) draw(svg, "text", { x: width - 4, y: y - 14, "text-anchor": "end", class: "ol-over" }, row.short)
    if (row.low && row.high) {
      draw(svg, "path", { d: `M${x(row.low)} ${y}H${x(row.high)}M${x(row.low)} ${y - 6}v12M${x(row.high)} ${y - 6}v12`, class: "ol-bar ol-c0" })
    }
    draw(svg, "circle", { cx: x(row.ratio), cy: y, r: 5.5, class: `ol-mark ol-c${picture.hollow ? "1 ol-hollow" : "1"}` })
  })
}

const SHAPES = [
  r => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  r => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  r => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0z`,
  r => `M0 ${-1.2 * r}L${1.2 * r} ${r}L${-1.2 * r} ${r}z`,
]

function mark(svg, series, x, y, r) {
  const number = Math.max(0, series.color)
  const shape = SHAPES[(number + Math.floor(number / 12)) % SHAPES.length](r)  // 24 pairs before one comes again
  const name = `ol-mark ol-c${series.color < 0 ? "m" : series.color % COLORS}${series.hollow ? " ol-hollow" : ""}`
  return draw(svg, "path", { d: shape, transform: `translate(${x} ${y})`, class: name })
}

function plot(svg, picture, width) {
  const left = Math.max(...picture.y.ticks.map(([, text]) => text.length)) * CHAR_PX + 14
  const top = picture.legend ? 44 : 24, foot = picture.height - 44
  const x = scale(picture.x, left + 8, width - 16), y = scale(picture.y, foot, top)
  for (const [value, text] of roomy(picture.y, one => 3 * y(one))) {
    draw(svg, "line", { x1: left, x2: width - 4, y1: y(value), y2: y(value), class: "ol-grid" })
    draw(svg, "text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text)
  }
  for (const [value, text] of roomy(picture.x, x)) {
    draw(svg, "text", { x: Math.min(width - 4 - text.length * CHAR_PX / 2, x(value)), y: foot + 18, "text-anchor": "middle" }, text)
  }
  draw(svg, "text", { x: 4, y: 13 }, picture.y.title)
  title(svg, picture.x.title, width, foot + 38)
  if (picture.level !== null) draw(svg, "line", { x1: left, x2: width - 4, y1: y(picture.level), y2: y(picture.level), class: "ol-level" })
  let legend = left + 8
  for (const series of picture.series) {
    const color = series.color < 0 ? "m" : series.color % COLORS
    let joined = "", begins = true
    for (const [a, b] of series.points) {
      if (b !== null) joined += begins ? `M${x(a)} ${y(b)}` : series.line === "step" ? `H${x(a)}V${y(b)}` : `L${x(a)} ${y(b)}`
      begins = b === null
    }
    if (series.line && joined) draw(svg, "path", { d: joined, class: `ol-line ol-${series.line} ol-c${color}` })
    for (const [a, b, name] of series.points) {
      if (b === null) continue
      const one = mark(svg, series, x(a), y(b), series.size / 2)
      if (name) draw(one, "title", {}, name)
    }
    if (!picture.legend || legend + series.name.length * CHAR_PX > width) continue
    mark(svg, series, legend, 29, 5)
    draw(svg, "text", { x: legend + 10, y: 33 }, series.name)
    legend += series.name.length * CHAR_PX + 34
  }
}

function picture(box, one, state) {
  const width = Math.max(200, Math.floor(box.clientWidth))
  const broken = one.kind === "forest" && one.x.title.length * CHAR_PX > width ? 16 : 0
  const svg = document.createElementNS(SVG, "svg")
  for (const [name, value] of [["width", width], ["height", one.height + broken], ["aria-hidden", "true"]]) svg.setAttribute(name, value)
  ;(one.kind === "forest" ? forest : plot)(svg, one, width)
  box.setAttribute("aria-label", one.alt)
  box.dataset.state = state
  box.replaceChildren(svg)
}

// --- a view

const HOW = {
  asks: "Live updates do not come through; this view asks every 2 s instead.",
  lost: "The connection to the server is lost; trying again.",
}

class View {
  constructor(root) {
    this.root = root
    this.drawn = ""
    this.sizes = new ResizeObserver(() => this.pictures(true))
    this.sizes.observe(root)
  }
  use(data, trigger) {
    Object.assign(this, { data, trigger })
    if (this.feed?.url !== data.url) {
      this.leave()
      if (!feeds.has(data.url)) feeds.set(data.url, new Feed(data.url, 1000 * data.every_s))
      this.feed = feeds.get(data.url)
      this.feed.views.add(this)
    } else if (this.feed.event?.ended) {  // the page thinks otherwise
      this.feed.event = null
      setTimeout(() => { if (this.feed?.views.size) this.feed.open() }, POLL_MS)
    }
    this.show()
  }
  leave() {
    clearTimeout(this.again)
    clearInterval(this.aging)
    this.feed?.leave(this)
    this.feed = null
  }
  end() {
    this.sizes.disconnect()
    this.leave()
  }
  show() {
    const event = this.feed.event ?? this.data.event
    const ended = Boolean(event.ended)
    this.root.dataset.state = event.state
    const said = JSON.stringify([event, this.feed.how])
    if (said !== this.drawn && !(ended && !event.lines)) {  // what was shown last stays until the page draws the result
      this.drawn = said
      if (this.data.part) this.few(event)
      else this.whole(event)
    }
    if (ended && this.data.rerun) this.call()
  }
  call() {  // once; again only where it was lost on its way
    clearTimeout(this.again)
    this.trigger("ended", this.data.url)
    this.again = setTimeout(() => { if (this.feed?.event?.ended) this.call() }, AGAIN_MS)
  }
  few(event) {
    this.root.replaceChildren()
    const ratio = event.ratio ? [{ text: event.ratio, icon: "timer", color: "gray" }] : []
    for (const one of this.data.part === "ratio" ? ratio : event.more ?? []) line(this.root, one)
  }
  whole(event) {
    const { root } = this
    if (!root.firstChild) {
      this.track = make(root, "div", "ol-track")
      this.done = make(this.track, "div", "ol-done")
      for (const [name, value] of [["role", "progressbar"], ["aria-label", "Progress"], ["aria-valuemin", 0], ["aria-valuemax", 100]]) {
        this.track.setAttribute(name, value)
      }
      this.text = make(root, "p", "ol-text")
      this.lines = make(root, "div", "ol-lines")
      this.caption = make(root, "p", "ol-small")
      this.boxes = make(root, "div", "ol-pictures")
      this.how = make(root, "p", "ol-small ol-how")
    }
    this.track.hidden = typeof event.share !== "number"
    this.track.setAttribute("aria-valuenow", Math.round(100 * (event.share ?? 0)))
    this.track.setAttribute("aria-valuetext", event.text ?? "")
    this.done.style.width = `${100 * (event.share ?? 0)}%`
    for (const [node, text] of [[this.text, event.text], [this.caption, event.caption], [this.how, HOW[this.feed.how]]]) {
      node.hidden = !text
      if (text && node.dataset.said !== text) { words(node, text); node.dataset.said = text }
    }
    const lines = JSON.stringify(event.lines ?? [])
    if (this.lines.dataset.said !== lines) {
      this.lines.dataset.said = lines
      this.write(event.lines ?? [])
    }
    this.event = event
    this.pictures(false)
  }
  write(lines) {
    const came = performance.now()
    const again = () => {
      this.lines.replaceChildren()
      for (const one of lines) line(this.lines, aged(one, (performance.now() - came) / 1000))
    }
    clearInterval(this.aging)
    again()
    if (lines.some(one => one.age_s !== undefined)) this.aging = setInterval(again, AGING_MS)
  }
  pictures(resized) {
    const wanted = this.event?.pictures ?? []
    if (!this.boxes) return
    while (this.boxes.children.length > wanted.length) this.boxes.lastChild.remove()
    wanted.forEach((one, i) => {
      const box = this.boxes.children[i] ?? make(this.boxes, "div", "ol-picture")
      const said = JSON.stringify(one), width = String(box.clientWidth)
      if (box.said === said && (!resized || box.dataset.width === width)) { box.dataset.state = this.event.state; return }
      box.said = said
      box.dataset.width = width
      box.dataset.ortune = "picture"
      box.className = one.kind === "forest" || one.wide ? "ol-picture ol-wide" : "ol-picture"
      box.setAttribute("role", "img")
      picture(box, one, this.event.state)
    })
  }
}

export default function ({ parentElement, data, setTriggerValue }) {
  let view = views.get(parentElement)
  if (!view) views.set(parentElement, view = new View(parentElement.querySelector(".ol-live")))
  view.use(data, setTriggerValue)
  return () => { view.end(); views.delete(parentElement) }
}
