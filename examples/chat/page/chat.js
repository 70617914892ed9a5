import { Feed } from "./feed.js";
import * as messages from "./messages.js";
import { Socket } from "./socket.js";

const slow = 3_000, lost = 12_000; // milliseconds without an answer to a message after which that is shown, and a socket given up
const maxRooms = 12;               // in the list
const maxText = 1000;              // characters

const byID = id => document.getElementById(id);
const [side, shade, menu, status, notice, join, say, text, name] =
	["side", "shade", "menu", "status", "notice", "join", "say", "text", "name"].map(byID);

// A tab is a visitor of its own, and stays the same one when it is loaded again. The server makes of the secret by whom others
// tell visitors.
const visitor = sessionStorage.visitor ??= unique();

let room = "";           // the current one
let me = null;           // who this is in the room, once that is known
let people = new Map();  // who is in the room, by id; only who talks knows it
let count = 0;           // how many that are
let seen = new Set();    // ids of the messages that are shown
let last = 0;            // id of the last one before which nothing is missing
let complete = false;    // nothing is missing up to now
let waiting = new Map(); // own messages in it without an answer, by key: { text, at, since, item }
let socket = null;       // of who talks
let asked = 0;           // counts what the server was asked for, so that late answers are known

const outbox = new Map(); // waiting, of each room
const unread = new Map(); // in rooms that aren't the current one
let rooms = ["lobby", ...remembered()].filter((r, i, all) => all.indexOf(r) === i);

function remembered() {
	try {
		return JSON.parse(localStorage.rooms ?? "[]").filter(r => r === slug(r) && r);
	} catch {
		return [];
	}
}

// unique returns a text that nobody can guess. Browsers have randomUUID only for sites that are safe, as localhost is.
function unique() {
	return Array.from(crypto.getRandomValues(new Uint32Array(4)), n => n.toString(36)).join("-");
}

// slug makes the name of a room of what somebody has typed.
function slug(typed) {
	const plain = String(typed).normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
	return plain.replace(/[^a-z0-9]+/g, "-").slice(0, 32).replace(/^-+|-+$/g, "");
}

// Rooms

function enter() {
	let typed = location.hash.slice(1);
	try {
		typed = decodeURIComponent(typed);
	} catch { /* it is taken as it is */ }
	const wanted = slug(typed) || "lobby";
	if (wanted !== typed) history.replaceState(null, "", "#" + wanted);
	if (wanted === room) return;
	room = wanted;
	rooms = [room, ...rooms.filter(r => r !== room)].slice(0, maxRooms).sort((a, b) => (b === "lobby") - (a === "lobby") || a.localeCompare(b));
	localStorage.rooms = JSON.stringify(rooms);
	unread.delete(room);
	if (!outbox.has(room)) outbox.set(room, new Map());
	waiting = outbox.get(room);
	seen = new Set();
	last = 0;
	messages.clear();
	warn("");
	byID("room").textContent = room;
	talk();
	for (const own of waiting.values()) showWaiting(own);
}

// talk connects to the room: by a socket for who has a name, or else by the feed, as one who watches.
function talk() {
	socket?.close();
	socket = null;
	me = null;
	complete = false;
	people = new Map();
	count = 0;
	asked++;
	join.hidden = Boolean(sessionStorage.name);
	say.hidden = !join.hidden;
	if (sessionStorage.name) {
		byID("me").textContent = sessionStorage.name;
		socket = new Socket(address, { message: heard, closed });
	}
	follow();
	if (watching() && feed.live) look();
	showRooms();
	showPeople();
	showStatus();
}

function address() {
	const url = new URL(`/rooms/${room}/socket`, location.href);
	url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
	url.search = new URLSearchParams({ name: sessionStorage.name, visitor, after: last || "" });
	return url.href;
}

// The socket

function heard(event) {
	switch (event.type) {
	case "welcome":
		me = event.you;
		byID("me").textContent = me.name;
		people = new Map(event.people.map(p => [p.id, p]));
		count = people.size;
		messages.setOwn(me.id);
		take(event);
		warn("");
		for (const [key, own] of waiting) {
			own.since = Date.now();
			socket.send({ text: own.text, key });
		}
		follow();
		break;
	case "message":
		show(event);
		break;
	case "people":
		if (event.joined) people.set(event.joined.id, event.joined);
		if (event.left) people.delete(event.left.id);
		count = event.count;
		break;
	case "refused":
		refused(event);
		break;
	}
	showPeople();
	showStatus();
}

function closed(code, reason) {
	complete = false;
	if (reason && code !== 1001) warn("The server says: " + reason + ".");
	follow();
	showStatus();
}

function refused({ key, reason }) {
	const own = waiting.get(key);
	if (!own) return;
	waiting.delete(key);
	messages.remove(own.item);
	warn("Your message wasn’t sent: " + reason + ".");
	text.value = text.value ? own.text + "\n" + text.value : own.text;
	fit();
}

// The feed

const feed = new Feed({
	open: look,
	resumed: showStatus,
	lost: showStatus,
	message: show,
	people: news => {
		if (news.room !== room || socket?.live) return;
		count = news.count;
		showPeople();
	},
});

// watching reports whether the room is known by the feed: that of who has no name, or whose network has no way for WebSockets.
function watching() {
	return !socket || (!socket.live && socket.failures > 1);
}

// follow has the feed tell of all rooms that nothing else tells of. A browser has few connections for all tabs of a site, so one
// that isn't looked at has no feed.
function follow() {
	feed.follow(document.hidden ? [] : rooms.filter(r => r !== room || watching()));
}

// look asks for what was said in the room, as the feed begins with what is said from now on.
async function look() {
	showStatus();
	if (!watching()) return;
	complete = false;
	const mine = ++asked;
	try {
		const response = await fetch(`/rooms/${room}/messages?after=${last || ""}`);
		if (!response.ok) throw new Error(String(response.status));
		const answer = await response.json();
		if (mine !== asked || socket?.live) return;
		count = answer.people;
		take(answer);
		showPeople();
		showStatus();
	} catch {
		if (mine === asked) setTimeout(() => { if (mine === asked) look(); }, slow);
	}
}

// Messages

// take shows what was said while this wasn't connected.
function take({ messages: said, gap }) {
	if (gap && last) messages.addGap(last);
	complete = true;
	for (const message of said) show(message);
	last = Math.max(last, ...seen);
}

function show(message) {
	if (message.room !== room) {
		if (rooms.includes(message.room)) {
			unread.set(message.room, (unread.get(message.room) ?? 0) + 1);
			showRooms();
		}
		return;
	}
	const own = waiting.get(message.key);
	if (own) {
		waiting.delete(message.key);
		messages.remove(own.item);
	}
	if (complete) last = Math.max(last, message.id);
	if (seen.has(message.id)) return;
	seen.add(message.id);
	messages.add(message, message.from.id === me?.id);
	showTitle();
}

// showWaiting shows a message of this visitor that the server doesn't have yet, for all that is known.
function showWaiting(own) {
	own.item = messages.add({ at: own.at, from: me ?? { id: "", name: sessionStorage.name }, text: own.text }, true);
}

say.addEventListener("submit", event => {
	event.preventDefault();
	const typed = text.value.trim();
	if (!typed || [...typed].length > maxText) return;
	const key = unique(), now = Date.now(), own = { text: typed, at: now, since: now };
	waiting.set(key, own);
	showWaiting(own);
	socket.send({ text: typed, key }); // or else when there is a connection
	text.value = "";
	warn("");
	fit();
	showStatus();
});

// Enter sends, also the one of a keyboard on the screen, and with Shift it begins a line.
let shift = false;
text.addEventListener("keydown", event => { shift = event.shiftKey; });
text.addEventListener("beforeinput", event => {
	if (event.inputType !== "insertLineBreak" || shift) return;
	event.preventDefault();
	say.requestSubmit();
});
text.addEventListener("input", fit);

// fit makes the field as high as its text, and shows how much may follow when that is little.
function fit() {
	text.style.height = "auto";
	text.style.height = text.scrollHeight + 2 + "px";
	const left = maxText - [...text.value].length;
	byID("left").textContent = left <= 100 ? `${left} left` : "";
}

// Names

join.addEventListener("submit", event => {
	event.preventDefault();
	// Characters that aren't seen, but for those that join others, are refused by the server, and come with what is pasted.
	const chosen = name.value.replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\ufffd]/gu, "").trim();
	name.value = chosen;
	if (!name.reportValidity()) return; // there is none
	sessionStorage.name = localStorage.name = chosen;
	talk();
	text.focus();
});

byID("rename").addEventListener("click", () => {
	delete sessionStorage.name;
	talk();
	name.focus();
	name.select();
});

// What is shown around

function showRooms() {
	byID("rooms").replaceChildren(...rooms.map(r => {
		const item = document.createElement("li"), link = document.createElement("a");
		link.href = "#" + r;
		link.textContent = r;
		if (r === room) link.setAttribute("aria-current", "page");
		const news = unread.get(r);
		if (news) {
			const badge = document.createElement("span");
			badge.className = "badge";
			badge.textContent = news > 99 ? "99+" : news;
			badge.setAttribute("aria-label", `${news} new`);
			link.append(" ", badge);
		}
		item.append(link);
		return item;
	}));
}

function showPeople() {
	byID("count").textContent = count;
	byID("people").replaceChildren(...[...people.values()].sort((a, b) => a.name.localeCompare(b.name)).map(p => {
		const item = document.createElement("li"), face = document.createElement("span"), who = document.createElement("bdi");
		item.style.setProperty("--hue", messages.hue(p.id));
		face.className = "avatar";
		face.setAttribute("aria-hidden", "true");
		face.textContent = messages.initial(p.name);
		who.textContent = p.name;
		item.append(face, who);
		if (p.id === me?.id) {
			const you = document.createElement("span");
			you.className = "you";
			you.textContent = "you";
			item.append(you);
		}
		return item;
	}));
}

// state returns how the connection is, and how to say it.
function state() {
	if (!navigator.onLine) return ["off", "You are offline"];
	if (socket?.live) {
		const oldest = Math.min(...[...waiting.values()].map(own => own.since));
		return Date.now() - oldest > slow ? ["wait", "The connection is slow"] : ["live", "Connected"];
	}
	if (watching() && feed.live) return socket ? ["watch", "Reading only"] : ["watch", "Watching"];
	return socket?.failures || (!socket && seen.size) ? ["off", "Disconnected – trying again"] : ["wait", "Connecting…"];
}

function showStatus() {
	const [kind, words] = state();
	if (status.textContent === words) return; // it isn't read out again
	status.dataset.state = kind;
	status.textContent = words;
}

function showTitle() {
	if (document.hidden && me) document.title = `• ${room} – Chat`;
	else document.title = `${room} – Chat`;
}

function warn(words) {
	notice.textContent = words;
	notice.hidden = !words;
}

setInterval(() => {
	showStatus();
	if (socket?.live && [...waiting.values()].some(own => Date.now() - own.since > lost)) {
		complete = false;
		socket.again(); // what was sent gets lost on its way
		showStatus();
	}
}, 1000);

// What the browser tells

addEventListener("hashchange", () => {
	enter();
	showTitle();
	toggle(false);
});
addEventListener("online", () => socket?.now());
addEventListener("offline", showStatus);
document.addEventListener("visibilitychange", () => {
	if (!document.hidden) socket?.now();
	follow();
	showTitle();
});

// The list of rooms and people, which is beside the messages or, where there is no space, above them

function toggle(open) {
	side.classList.toggle("open", open);
	shade.hidden = !open;
	menu.setAttribute("aria-expanded", open);
	if (open) side.querySelector("a")?.focus();
}

menu.addEventListener("click", () => toggle(!side.classList.contains("open")));
shade.addEventListener("click", () => toggle(false));
addEventListener("keydown", event => {
	if (event.key !== "Escape" || !side.classList.contains("open")) return;
	toggle(false);
	menu.focus();
});
byID("open").addEventListener("submit", event => {
	event.preventDefault();
	const wanted = slug(byID("another").value);
	byID("another").value = "";
	if (wanted) location.hash = wanted;
});

name.value = localStorage.name ?? "";
enter();
showTitle();
