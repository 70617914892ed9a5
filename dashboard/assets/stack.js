// The stack of workers as it breathes. The one that became ready last lies on top, warm, and is taken first; those at the bottom
// get cold, and end. The ones that are taken hover above.

import { count } from "./format.js"

const steps = [1, 2, 5]

// How far apart plates lie.
const leastPitch = 9, mostPitch = 18

// plateOf returns how many workers a plate stands for, so that there are no more than most.
const plateOf = (workers, most) => {
  for (let power = 1; ; power *= 10) for (const step of steps) if (workers / (step * power) <= most) return step * power
}

const mix = (a, b, part) => a.map((value, i) => value + (b[i] - value) * part)

export class Stack {
  constructor(canvas, scaleText) {
    this.canvas = canvas
    this.scaleText = scaleText
    this.pen = canvas.getContext("2d")
    this.plates = [] // from the bottom up, each with lift, alpha and drop, which go where they should
    this.pitch = this.pitchShown = mostPitch
    this.ready = this.running = this.leading = 0
    this.rate = 0
    this.still = matchMedia("(prefers-reduced-motion: reduce)")
    this.scheme = matchMedia("(prefers-color-scheme: dark)")
    this.readColors()
    this.scheme.addEventListener("change", () => { this.readColors(); this.draw(performance.now()) })
    new ResizeObserver(() => this.resize()).observe(canvas)
    this.frame = this.frame.bind(this)
    this.last = performance.now()
    requestAnimationFrame(this.frame)
  }

  // readColors has the browser work out the colours of the style sheet, which depend on the scheme.
  readColors() {
    const probe = document.createElement("i")
    document.body.append(probe)
    const color = name => {
      probe.style.color = `var(${name})`
      return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number)
    }
    this.colors = { cold: color("--cold"), warm: color("--warm"), hot: color("--hot"), line: color("--line"), quiet: color("--quiet"), text: color("--text") }
    probe.remove()
  }

  resize() {
    const { width, height } = this.canvas.getBoundingClientRect()
    this.ratio = devicePixelRatio || 1
    this.width = width
    this.height = height
    this.canvas.width = Math.round(width * this.ratio)
    this.canvas.height = Math.round(height * this.ratio)
    this.layout()
    this.draw(performance.now())
  }

  update(s, rate) {
    this.workers = { running: s.workersRunning, ready: s.workersReady, leading: s.workersLeading }
    this.rate = rate
    this.canvas.setAttribute("aria-label",
      `The stack of workers: ${count(s.workersRunning)} at work, ${count(s.workersReady)} ready, ${count(s.workersLeading)} leading a loop`)
    this.layout()
    if (this.still.matches) this.settle()
  }

  // layout says how many plates there should be of each kind.
  layout() {
    if (!this.workers || !this.height) return
    const room = this.height - 100
    const { running, ready, leading } = this.workers
    const plate = plateOf(running + ready, Math.max(6, Math.floor(room / leastPitch)))
    this.ready = Math.ceil(ready / plate)
    this.running = Math.ceil(running / plate)
    this.leading = leading
    this.pitch = Math.min(mostPitch, Math.max(leastPitch, room / Math.max(1, this.ready + this.running)))
    this.scaleText.textContent = plate === 1 ? "last in, first out" : `a plate is ${count(plate)} workers`
    while (this.plates.length < this.ready + this.running) this.plates.push({ lift: this.plates.length < this.ready ? 0 : 1, alpha: 0, drop: 14 })
  }

  settle() {
    this.plates.length = Math.min(this.plates.length, this.ready + this.running)
    this.pitchShown = this.pitch
    this.plates.forEach((plate, i) => Object.assign(plate, { lift: i < this.ready ? 0 : 1, alpha: 1, drop: 0 }))
    this.draw(0)
  }

  frame(now) {
    requestAnimationFrame(this.frame)
    const seconds = Math.min(0.1, (now - this.last) / 1000)
    this.last = now
    if (this.still.matches || !this.workers) return
    const toward = (value, target, speed) => value + (target - value) * (1 - Math.exp(-seconds * speed))
    this.pitchShown = toward(this.pitchShown, this.pitch, 5)
    this.plates.forEach((plate, i) => {
      const there = i < this.ready + this.running
      plate.lift = toward(plate.lift, i < this.ready ? 0 : 1, 7)
      plate.alpha = toward(plate.alpha, there ? 1 : 0, 8)
      plate.drop = toward(plate.drop, 0, 9)
    })
    while (this.plates.length > this.ready + this.running && this.plates.at(-1).alpha < 0.02) this.plates.pop()
    this.draw(now)
  }

  draw(now) {
    if (!this.width || !this.workers) return
    const { pen, colors, pitchShown: pitch } = this
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0)
    pen.clearRect(0, 0, this.width, this.height)
    const plateWidth = Math.min(190, this.width * 0.5), left = Math.max(8, this.width * 0.5 - plateWidth * 0.72)
    const floor = this.height - 40
    this.drawLoops(left, floor, plateWidth)

    // How deeply it breathes tells how much there is to do, and how fast.
    const busy = this.still.matches ? 0 : Math.min(1, Math.log10(this.rate + 1) / 5)
    const breath = Math.sin(now / (900 - 450 * busy)) * busy
    const hover = 24 + 4 * breath, thin = pitch > 12 ? 4 : 3
    let readyTop = floor, runningTop = 0, runningBottom = 0
    this.plates.forEach((plate, i) => {
      const depth = this.ready > 1 ? i / (this.ready - 1) : 1
      const bob = i < this.ready ? breath * 1.6 * depth ** 3 : 0
      const y = floor - (i + 1) * pitch - plate.lift * hover - plate.drop - bob
      const sway = plate.lift * Math.sin(now / 700 + i * 1.7) * 5 * busy
      const color = mix(mix(colors.cold, colors.warm, Math.max(0, Math.min(1, depth)) ** 1.6), colors.hot, plate.lift)
      pen.globalAlpha = plate.alpha
      pen.shadowBlur = plate.lift * (10 + 5 * breath)
      pen.shadowColor = `rgb(${color} / .55)`.replaceAll(",", " ")
      pen.fillStyle = `rgb(${color.map(Math.round).join(" ")})`
      pen.beginPath()
      pen.roundRect(left + sway, y, plateWidth, pitch - thin, Math.min(5, (pitch - thin) / 2))
      pen.fill()
      if (i < this.ready) readyTop = y
      else if (i < this.ready + this.running) {
        runningTop = y
        runningBottom ||= y + pitch - thin
      }
    })
    pen.globalAlpha = 1
    pen.shadowBlur = 0
    const label = left + plateWidth + 14
    const { running, ready } = this.workers
    if (this.running > 0) this.drawLabel(label, (runningTop + runningBottom) / 2, count(running), "at work", colors.hot)
    if (this.ready > 0) this.drawLabel(label, (readyTop + floor) / 2 - 2, count(ready), "ready", colors.warm)
    if (this.ready + this.running === 0) this.drawLabel(left + plateWidth / 2 - 40, floor - 40, "", "nobody is ready yet", colors.quiet)
  }

  // drawLoops draws what the stack stands on: a piece for each loop that a worker leads.
  drawLoops(left, floor, plateWidth) {
    const { pen, colors } = this
    const pieces = Math.min(this.leading, 32), space = 3
    pen.shadowBlur = 0
    pen.globalAlpha = 1
    if (pieces === 0) {
      pen.fillStyle = `rgb(${colors.line.join(" ")})`
      pen.fillRect(left - 10, floor + 4, plateWidth + 20, 2)
      return
    }
    const each = (plateWidth + 20 - space * (pieces - 1)) / pieces
    pen.fillStyle = `rgb(${colors.hot.join(" ")})`
    for (let i = 0; i < pieces; i++) {
      pen.beginPath()
      pen.roundRect(left - 10 + i * (each + space), floor + 6, each, 4, 2)
      pen.fill()
    }
    this.drawLabel(left + plateWidth + 14, floor + 12, count(this.leading), this.leading === 1 ? "leads a loop" : "lead loops", colors.hot)
  }

  drawLabel(x, y, figure, text, color) {
    const { pen, colors } = this
    pen.textBaseline = "middle"
    pen.font = "600 15px system-ui, sans-serif"
    pen.fillStyle = `rgb(${colors.text.join(" ")})`
    pen.fillText(figure, x + 8, y)
    const width = figure ? pen.measureText(figure).width + 6 : 0
    pen.font = "12.5px system-ui, sans-serif"
    pen.fillStyle = `rgb(${colors.quiet.join(" ")})`
    pen.fillText(text, x + 8 + width, y + 0.5)
    if (!figure) return
    pen.fillStyle = `rgb(${color.map(Math.round).join(" ")})`
    pen.fillRect(x - 4, y - 7, 2, 14)
  }
}
