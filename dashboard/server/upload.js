const running = new WeakMap()
const sent = new WeakMap()  // area -> the batch that the server has not taken yet, and what to say then
const PATIENCE_MS = 60000

function text(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"]  // as `core.wire.units.size` writes them
  let i = 0
  while (bytes >= 1024 && i < units.length - 1) { bytes /= 1024; i += 1 }
  return `${bytes.toFixed(i ? Math.max(0, 2 - Math.floor(Math.log10(bytes))) : 0)} ${units[i]}`
}

function send(file, data, onProgress, box) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest()
    running.set(box, xhr)
    xhr.open("PUT", `${data.base}/api/upload/${data.batch}/${encodeURIComponent(file.name)}`)
    xhr.setRequestHeader(data.header, data.token)
    xhr.setRequestHeader("Content-Type", "application/octet-stream")
    xhr.upload.onprogress = e => onProgress(e.loaded)
    xhr.onload = () => {
      if (xhr.status === 200) return resolve()
      let why = `the server answered ${xhr.status}`
      if (xhr.status === 404 || xhr.status === 405) {
        why = "this server takes no uploads; start it with python -m dashboard"
      }
      try { why = (JSON.parse(xhr.responseText).error || why).replaceAll("`", "") } catch (_) { /* not ours */ }
      reject(new Error(why))
    }
    xhr.onerror = () => reject(new Error("the connection broke"))
    xhr.onabort = () => reject(new Error("cancelled"))
    xhr.send(file)
  })
}

export default function (component) {
  const { parentElement, data, setTriggerValue } = component
  const find = s => parentElement.querySelector(s)
  const box = find(".drop"), input = find("input"), bar = find("progress"), state = find(".state")
  const stop = find(".stop")
  find(".label").textContent = data.label
  find(".hint").textContent = data.hint
  input.multiple = data.multiple
  input.accept = data.accept

  function say(words, wrong = false) {
    state.textContent = words
    state.classList.toggle("wrong", wrong)
    if (wrong) box.scrollIntoView({ block: "nearest" })
  }

  const waiting = sent.get(box)
  if (waiting && waiting.batch !== data.batch) {  // the server has it: what it thinks of it stands below
    clearTimeout(waiting.timer)
    sent.delete(box)
    box.ariaBusy = "false"
    say(data.wrong ? "" : waiting.said)
  }
  if (data.wrong) requestAnimationFrame(() => box.scrollIntoView({ block: "center" }))

  function refused(files) {
    const kinds = data.accept.split(",").filter(Boolean)
    const other = files.find(f => kinds.length && !kinds.some(kind => f.name.toLowerCase().endsWith(kind)))
    if (other) return `${other.name} is none of ${kinds.join(", ")}`
    const large = files.find(f => f.size > data.limit)
    return large && `${large.name} is larger than ${text(data.limit)}`
  }

  async function upload(files) {
    if (!files.length || running.get(box)) return
    const why = refused(files)
    if (why) {
      input.value = ""
      return say(`Upload refused: ${why}.`, true)
    }
    const total = files.reduce((sum, f) => sum + f.size, 0)
    let before = 0
    box.ariaBusy = "true"  // until the server has it
    document.addEventListener("ortune-reload", function stay(event) {
      if (box.isConnected && box.ariaBusy === "true") event.preventDefault()
      else document.removeEventListener("ortune-reload", stay)
    })
    bar.hidden = false; stop.hidden = false; bar.value = 0
    try {
      for (const file of files) {
        await send(file, data, loaded => {
          bar.value = total ? (before + loaded) / total : 1
          say(`Sending ${file.name}: ${text(before + loaded)} of ${text(total)}`)
        }, box)
        before += file.size
      }
      const said = `Sent ${files.length} file${files.length > 1 ? "s" : ""}, ${text(total)}.`
      say(`${said} Reading…`)
      const timer = setTimeout(() => {
        box.ariaBusy = "false"
        say("The server does not answer. Reload the page.", true)
      }, PATIENCE_MS)
      sent.set(box, { batch: data.batch, said, timer })
      setTriggerValue("uploaded", { batch: data.batch, names: files.map(f => f.name) })
    } catch (error) {
      box.ariaBusy = "false"
      say(`Upload failed: ${error.message.replace(/\.$/, "")}.`, true)
    } finally {
      running.delete(box); bar.hidden = true; stop.hidden = true; input.value = ""
    }
  }

  find(".choose").onclick = () => input.click()
  stop.onclick = () => running.get(box)?.abort()
  input.onchange = () => upload([...input.files])
  box.ondragover = e => { e.preventDefault(); box.classList.add("over") }
  box.ondragleave = () => box.classList.remove("over")
  box.ondrop = e => {
    e.preventDefault(); box.classList.remove("over")
    upload(data.multiple ? [...e.dataTransfer.files] : [...e.dataTransfer.files].slice(0, 1))
  }
}
