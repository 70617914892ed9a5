// The page: it asks for what was, and is then told each second what is.

import { Chart } from "./chart.js"
import { Stack } from "./stack.js"
import { Table, text, figure, share, kind } from "./table.js"
import { bytes, count, duration, rate, span } from "./format.js"

const at = id => document.getElementById(id)
const total = s => s.answers.reduce((sum, value) => sum + value, 0)
const quantile = i => s => s.latency ? s.latency[i] : null

const charts = [
  new Chart(at("requests"), {
    label: "Requests per second", areas: true, least: 5, format: rate,
    series: [
      { label: "2xx", color: "--good", value: s => s.answers[2] + s.answers[1] },
      { label: "3xx", color: "--info", value: s => s.answers[3] },
      { label: "4xx", color: "--warn", value: s => s.answers[4] },
      { label: "5xx", color: "--bad", value: s => s.answers[5] + s.answers[0] },
    ],
  }),
  new Chart(at("latency"), {
    label: "Latency", log: true, format: duration,
    series: [
      { label: "p50", color: "--one", value: quantile(0) },
      { label: "p90", color: "--two", value: quantile(1) },
      { label: "p99", color: "--three", value: quantile(2) },
      { label: "p99.9", color: "--four", value: quantile(3) },
    ],
  }),
  new Chart(at("connections"), {
    label: "Connections", areas: true, compact: true, least: 5, format: count,
    series: [
      { label: "active", color: "--good", value: s => s.connsActive },
      { label: "idle", color: "--dim", value: s => s.connsIdle },
      { label: "parked", color: "--three", value: s => s.connsParked },
      { label: "HTTP/2 streams", value: s => s.streams || null, format: count },
      { label: "HTTP/3 connections", value: s => s.http3 || null, format: count },
      { label: "HTTP/3 streams", value: s => s.http3Streams || null, format: count },
    ],
  }),
  new Chart(at("loops"), {
    label: "What loops do per second", compact: true, least: 5, format: rate,
    series: [
      { label: "handed off", color: "--two", value: s => s.handoffs },
      { label: "retaken", color: "--warn", value: s => s.retakes },
    ],
  }),
  new Chart(at("memory"), {
    label: "Memory", compact: true, least: 1 << 20, step: 1024, format: bytes,
    series: [
      { label: "heap", color: "--one", value: s => s.heap },
      { label: "system", color: "--two", value: s => s.memory },
    ],
  }),
  new Chart(at("scheduler"), {
    label: "Goroutines, how long 99 % of them wait for a processor at most, and the longest pause of a collection", compact: true, areas: true, least: 5, format: count,
    series: [
      { label: "", color: "--one", value: s => s.goroutines },
      { label: "wait", value: s => s.wait || null, format: duration },
      { label: "pause", value: s => s.pause || null, format: duration },
    ],
  }),
]

// What the kinds of classes are called here: the server calls handlers slow that take more than some microseconds.
const kinds = { quick: "quick", slow: "handed off", unknown: "new", inline: "inline", offload: "offload" }

const stack = new Stack(at("stack"), at("scale"))

const routes = new Table(at("routes"), [
  text(row => row.name),
  share(row => row.rate, rate),
  figure(row => row.median, duration),
  figure(row => row.slow, duration),
  figure(row => row.errors, rate, "bad"),
])

const classes = new Table(at("classes"), [
  text(row => row.name),
  kind(row => row.kind, kinds),
  figure(row => row.median, duration),
  figure(row => row.inline, rate),
  figure(row => row.handoffs, rate),
])

const workerFigures = [
  ["started", s => rate(s.workersSpawned) + "/s"],
  ["ended", s => rate(s.workersRetired) + "/s"],
  ["refused", s => rate(s.refused) + "/s"],
  ["tasks", s => count(s.tasks)],
].map(([name, value]) => {
  const group = document.createElement("div"), figure = document.createElement("dd"), label = document.createElement("dt")
  label.textContent = name
  group.append(label, figure)
  at("worker-figures").append(group)
  return s => { figure.textContent = value(s) }
})

let samples = [], about = null, seconds = 300, paused = false

const setState = (state, words) => {
  at("state").dataset.state = state
  at("state").textContent = words
}

const showAbout = () => {
  if (!about) return
  const processors = about.processors === 1 ? "1 processor" : `${about.processors} processors`
  at("about").textContent = `up ${span(Date.now() - about.started)} · ${about.go} · ${about.system} · ${processors}`
}

const show = () => {
  if (paused) return
  for (const chart of charts) chart.update(samples, seconds)
  const s = samples.at(-1)
  if (!s) return
  at("rate").textContent = rate(total(s))
  at("median").textContent = s.latency ? duration(s.latency[0]) : "–"
  at("connections-figure").textContent = count(s.connsActive + s.connsIdle + s.connsParked + s.http3)
  at("loops-figure").textContent = s.workersLeading > 0 ? `${s.workersLeading} leaders` : "none"
  at("memory-figure").textContent = bytes(s.memory)
  at("scheduler-figure").textContent = count(s.goroutines)
  stack.update(s, total(s))
  for (const fill of workerFigures) fill(s)
  showAbout()
}

const showTables = next => {
  if (paused) return
  routes.update(next.routes)
  classes.update(next.classes)
  at("routes-empty").hidden = next.routes.length > 0
}

const add = next => {
  if (samples.length > 0 && next.sample.n <= samples.at(-1).n) return
  samples.push(next.sample)
  const oldest = next.sample.t - about.history
  while (samples[0].t < oldest) samples.shift()
  show()
  showTables(next)
}

const load = async () => {
  const response = await fetch("history")
  if (!response.ok) throw new Error(`history: ${response.status}`)
  const past = await response.json()
  about = past.about
  document.title = `${about.title} – filo`
  at("title").textContent = about.title
  samples = past.samples
  show()
  showTables(past)
}

let events = null

const connect = () => {
  events?.close()
  events = new EventSource("events")
  const early = [] // what comes before the past is there
  let loaded = false
  events.onopen = async () => {
    loaded = false
    try {
      await load()
      loaded = true
      early.splice(0).forEach(add)
      setState(paused ? "paused" : "live", paused ? "paused" : "live")
    } catch {
      events.onerror()
    }
  }
  events.onmessage = event => {
    const next = JSON.parse(event.data)
    if (loaded) add(next)
    else early.push(next)
  }
  events.onerror = () => {
    setState("lost", "reconnecting")
    // An answer that isn't a stream ends it for good: the server may have been restarted, or be full.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 3000)
  }
}

at("window").addEventListener("change", event => {
  seconds = Number(event.target.value)
  for (const chart of charts) chart.update(samples, seconds)
})

at("pause").addEventListener("click", () => {
  paused = !paused
  at("pause").setAttribute("aria-pressed", paused)
  at("pause").textContent = paused ? "Go on" : "Pause"
  if (at("state").dataset.state !== "lost") setState(paused ? "paused" : "live", paused ? "paused" : "live")
  show()
})

// A page that nobody sees has no need of news, and gets what it has missed when it is seen again.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    events?.close()
    events = null
  } else if (!events) connect()
})

document.addEventListener("spoken", event => { at("spoken").textContent = event.detail })

setState("wait", "connecting")
connect()
