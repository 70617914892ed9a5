// Messages is the list of what was said in a room, in the order of the ids.
const most = 500;          // how many are shown
const together = 5 * 60_000; // milliseconds within which messages of one person look like one

const list = document.getElementById("messages");
const scroll = document.getElementById("scroll");
const down = document.getElementById("down");
const empty = document.getElementById("empty");
const template = document.getElementById("message");

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const date = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });

// hue returns the colour of a person, in degrees.
export function hue(id) {
	let h = 0;
	for (const c of id) h = (h * 31 + c.codePointAt(0)) % 997;
	return Math.round(h / 997 * 360);
}

// initial returns what stands for a name.
export function initial(name) {
	const [first] = new Intl.Segmenter().segment(name);
	return first.segment.toLocaleUpperCase();
}

// add shows a message; one without an id is on its way, and stays at the end. It returns its element.
export function add(message, own) {
	const item = template.content.firstElementChild.cloneNode(true);
	const when = new Date(message.at);
	item.dataset.id = message.id ?? Infinity;
	item.dataset.at = message.at;
	item.dataset.from = message.from.id;
	item.classList.toggle("own", own);
	item.classList.toggle("waits", !message.id);
	item.style.setProperty("--hue", hue(message.from.id));
	item.querySelector(".avatar").textContent = initial(message.from.name);
	item.querySelector("bdi").textContent = message.from.name;
	item.querySelector(".text").textContent = message.text;
	const time = item.querySelector("time");
	time.dateTime = when.toISOString();
	time.textContent = clock.format(when);
	place(item, own);
	return item;
}

// addGap shows that something may be missing after the message with the id, if it isn't shown yet: the feed and then the socket may
// both say so.
export function addGap(id) {
	if (list.querySelector(`.gap[data-id="${id}"]`)) return;
	const item = document.createElement("li");
	item.className = "gap";
	item.dataset.id = id;
	item.textContent = "Something may be missing here.";
	place(item, false);
}

// setOwn shows the messages of a person as those of the visitor.
export function setOwn(id) {
	for (const item of list.children) item.classList.toggle("own", item.dataset.from === id || item.classList.contains("waits"));
}

export function clear() {
	list.replaceChildren();
	changed();
}

// remove takes an element of add away.
export function remove(item) {
	const next = item.nextElementSibling;
	item.remove();
	if (next) arrange(next);
	changed();
}

// place puts an item where it belongs.
function place(item, own) {
	const atEnd = isAtEnd();
	let before = list.lastElementChild;
	while (before && Number(before.dataset.id) > Number(item.dataset.id)) before = before.previousElementSibling;
	if (before) before.after(item);
	else list.prepend(item);
	while (list.childElementCount > most) list.firstElementChild.remove();
	arrange(list.firstElementChild);
	arrange(item);
	if (item.nextElementSibling) arrange(item.nextElementSibling);
	changed();
	if (own || atEnd) toEnd();
	else down.hidden = false;
}

// arrange shows an item as its place wants: it may go on what is above it, and begin a day.
function arrange(item) {
	if (!item.dataset.at) return;
	const above = item.previousElementSibling;
	const at = Number(item.dataset.at), atAbove = Number(above?.dataset.at);
	const day = date.format(at);
	const sameDay = atAbove && date.format(atAbove) === day;
	item.classList.toggle("more", Boolean(sameDay && above.dataset.from === item.dataset.from && at - atAbove < together));
	if (sameDay || above?.className === "gap") delete item.dataset.day;
	else item.dataset.day = day === date.format(Date.now()) ? "Today" : day;
}

function changed() {
	empty.hidden = list.childElementCount > 0;
	if (empty.hidden === false) down.hidden = true;
}

function isAtEnd() {
	return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
}

export function toEnd() {
	scroll.scrollTop = scroll.scrollHeight;
	down.hidden = true;
}

down.addEventListener("click", toEnd);
scroll.addEventListener("scroll", () => { if (isAtEnd()) down.hidden = true; }, { passive: true });
// What is at the end stays there when the room for it becomes smaller, as by a keyboard.
let height = scroll.clientHeight;
new ResizeObserver(() => {
	const was = scroll.scrollHeight - scroll.scrollTop - height < 80;
	height = scroll.clientHeight;
	if (was) toEnd();
}).observe(scroll);
