// Charts of samples over time, as SVG: lines, or areas on top of each other, with a legend that shows the values of the latest
// sample, or of the one under the cursor. All charts have their cursor at the same time.

import { clock } from "./format.js"

const namespace = "http://www.w3.org/2000/svg"

const element = (parent, name, attributes = {}) => {
  const e = document.createElementNS(namespace, name)
  for (const key in attributes) e.setAttribute(key, attributes[key])
  parent.append(e)
  return e
}

const html = (parent, name, text = "") => {
  const e = document.createElement(name)
  e.textContent = text
  parent.append(e)
  return e
}

// A gap of more than that, in milliseconds, is one in which nobody has looked.
const gap = 2500

// above returns a round number that is at least value, round as a multiple of a power of step.
const above = (value, step) => {
  if (!(value > 0)) return 1
  const unit = step ** Math.max(0, Math.floor(Math.log(value) / Math.log(step)))
  const power = unit * 10 ** Math.floor(Math.log10(value / unit))
  for (const factor of [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) if (value <= factor * power) return factor * power
  return 10 * power
}

const charts = []
let cursor = null // the time under it, null if it is nowhere

const setCursor = time => {
  cursor = time
  for (const chart of charts) chart.draw()
}

export class Chart {
  // Options: label, what the chart shows; series, each with label, color (a custom property's name) and value, a function of
  // a sample that may return null; format of a value; areas, whether they are on top of each other; log, for an axis of
  // powers of ten; compact, to leave out the time axis; least, what the axis shows at least; step, what a larger unit is of the
  // one below. A series without a color is in the legend only, and may have a format of its own.
  constructor(place, options) {
    this.options = options
    this.samples = []
    this.seconds = 300
    this.plot = html(place, "div")
    this.plot.className = "plot"
    this.plot.tabIndex = 0
    this.plot.setAttribute("role", "img")
    this.svg = element(this.plot, "svg", { "aria-hidden": "true" })
    this.gridLayer = element(this.svg, "g")
    const legend = html(place, "ul")
    legend.className = "legend"
    this.legend = options.series.map(one => {
      const item = html(legend, "li")
      if (one.color) {
        item.style.setProperty("--color", `var(${one.color})`)
        html(item, "i")
      }
      if (one.label) html(item, "span", one.label)
      return { ...one, format: one.format ?? options.format, shown: html(item, "b", "–") }
    })
    this.series = options.series.filter(one => one.color).map(one => {
      const layer = element(this.svg, "g")
      layer.style.setProperty("--color", `var(${one.color})`)
      const area = options.areas ? element(layer, "path", { class: "area" }) : null
      return { ...one, area, line: element(layer, "path", { class: "line" }) }
    })
    this.textLayer = element(this.svg, "g")
    this.cursorLine = element(this.svg, "line", { class: "cursor", visibility: "hidden" })
    this.cursorTime = element(this.svg, "text", { class: "when", visibility: "hidden" })
    this.listen()
    charts.push(this)
    new ResizeObserver(() => this.draw()).observe(this.plot)
  }

  listen() {
    this.plot.addEventListener("pointermove", event => {
      const box = this.plot.getBoundingClientRect()
      setCursor(this.nearest(this.end() - (1 - (event.clientX - box.left) / box.width) * this.seconds * 1000)?.t ?? null)
    })
    this.plot.addEventListener("pointerleave", () => setCursor(null))
    this.plot.addEventListener("blur", () => setCursor(null))
    this.plot.addEventListener("keydown", event => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
      if (event.key === "Escape") setCursor(null)
      if (!step || this.samples.length === 0) return
      event.preventDefault()
      const from = cursor ?? this.end()
      const i = this.samples.findIndex(s => s.t >= from)
      const to = this.samples[Math.min(this.samples.length - 1, Math.max(0, i + (event.shiftKey ? 10 * step : step)))]
      setCursor(to.t)
      this.plot.dispatchEvent(new CustomEvent("spoken", { bubbles: true, detail: `${clock(to.t)}: ${this.describe(to)}` }))
    })
  }

  end() { return this.samples.at(-1)?.t ?? 0 }

  nearest(time) {
    let best = null
    for (const s of this.samples) if (!best || Math.abs(s.t - time) < Math.abs(best.t - time)) best = s
    return best
  }

  update(samples, seconds) {
    this.seconds = seconds
    const oldest = (samples.at(-1)?.t ?? 0) - seconds * 1000
    this.samples = samples.filter(s => s.t >= oldest)
    this.draw()
  }

  describe(s) {
    return this.legend.map(one => {
      const value = one.value(s)
      return `${one.label} ${value == null ? "none" : one.format(value)}`.trim()
    }).join(", ")
  }

  draw() {
    const { width, height } = this.plot.getBoundingClientRect()
    if (width === 0 || height === 0) return
    const bottom = this.options.compact ? height - 2 : height - 16
    const scale = this.scale(bottom)
    const x = time => width - (this.end() - time) / (this.seconds * 1000) * width
    this.drawGrid(width, bottom, height, scale)
    this.drawSeries(x, scale, bottom)
    this.drawCursor(x, width, bottom)
  }

  // scale returns how values become heights, and the values that have a line.
  scale(bottom) {
    const top = 14
    let highest = this.options.least ?? 0, lowest = Infinity
    for (const s of this.samples) {
      let sum = 0
      for (const one of this.series) {
        const value = one.value(s)
        if (value == null) continue
        sum = this.options.areas ? sum + value : value
        highest = Math.max(highest, sum)
        if (value > 0) lowest = Math.min(lowest, value)
      }
    }
    if (!this.options.log) {
      const limit = above(highest, this.options.step ?? 1000)
      return { y: value => bottom - value / limit * (bottom - top), marks: this.options.compact ? [limit] : [limit / 2, limit] }
    }
    if (lowest === Infinity) [lowest, highest] = [100, 10000]
    const from = Math.floor(Math.log10(lowest)), to = Math.max(from + 1, Math.ceil(Math.log10(highest)))
    const step = Math.ceil((to - from) / 4)
    const marks = []
    for (let power = from; power <= to; power += step) marks.push(10 ** power)
    return { y: value => bottom - (Math.log10(Math.max(value, 10 ** from)) - from) / (to - from) * (bottom - top), marks }
  }

  drawGrid(width, bottom, height, { y, marks }) {
    this.gridLayer.replaceChildren()
    this.textLayer.replaceChildren()
    const across = at => element(this.gridLayer, "line", { class: "grid", x1: 0, x2: width, y1: Math.round(at) + 0.5, y2: Math.round(at) + 0.5 })
    if (!this.options.log) across(bottom)
    for (const mark of marks) {
      across(y(mark))
      element(this.textLayer, "text", { x: 0, y: Math.round(y(mark)) - 3 }).textContent = this.options.format(mark)
    }
    if (this.options.compact) return
    const every = this.seconds > 120 ? 60 : 15
    for (let ago = 0; ago < this.seconds; ago += every) {
      const at = width - ago / this.seconds * width
      const text = ago === 0 ? "now" : ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`
      element(this.textLayer, "text", { x: at, y: height - 2, "text-anchor": ago === 0 ? "end" : "middle" }).textContent = text
    }
  }

  drawSeries(x, { y }, bottom) {
    const base = new Float64Array(this.samples.length)
    for (const one of this.series) {
      let line = "", area = "", from = -1, pen = false
      const finish = to => { // the area of a stretch without a gap, back along what is below
        if (!this.options.areas || from < 0) return
        for (let i = to; i >= from; i--) area += `L${x(this.samples[i].t).toFixed(1)},${y(base[i]).toFixed(1)}`
        area += "Z"
      }
      const heights = this.samples.map((s, i) => {
        const value = one.value(s)
        return value == null ? null : this.options.areas ? base[i] + value : value
      })
      this.samples.forEach((s, i) => {
        const joined = from >= 0 && heights[i] != null && s.t - this.samples[i - 1].t <= gap
        if (from >= 0 && !joined) {
          finish(i - 1)
          from = -1
        }
        if (heights[i] == null) return
        const point = `${x(s.t).toFixed(1)},${y(heights[i]).toFixed(1)}`
        // An area of nothing has no line: it would look like the end of one of something.
        const drawn = !this.options.areas || heights[i] > base[i]
        line += !drawn ? "" : joined && pen ? `L${point}` : `M${point}h0.01`
        pen = drawn
        area += joined ? `L${point}` : `M${point}`
        if (!joined) from = i
      })
      finish(this.samples.length - 1)
      one.line.setAttribute("d", line)
      one.area?.setAttribute("d", area)
      if (this.options.areas) heights.forEach((value, i) => { base[i] = value ?? base[i] })
    }
  }

  drawCursor(x, width, bottom) {
    const shown = cursor == null ? this.samples.at(-1) : this.nearest(cursor)
    for (const one of this.legend) {
      const value = shown ? one.value(shown) : null
      one.shown.textContent = value == null ? "–" : one.format(value)
    }
    if (shown) this.plot.setAttribute("aria-label", `${this.options.label}: ${this.describe(shown)}. The arrow keys go back in time.`)
    const visible = cursor != null && shown && x(shown.t) >= 0
    for (const part of [this.cursorLine, this.cursorTime]) part.setAttribute("visibility", visible ? "visible" : "hidden")
    if (!visible) return
    const at = x(shown.t)
    for (const [key, value] of [["x1", at], ["x2", at], ["y1", 14], ["y2", bottom]]) this.cursorLine.setAttribute(key, value)
    this.cursorTime.setAttribute("x", Math.min(Math.max(at, 26), width - 26))
    this.cursorTime.setAttribute("y", 10)
    this.cursorTime.textContent = clock(shown.t)
  }
}
