// The page: what is stored, as the server tells it, and the uploads of this browser.

import { Upload } from "/upload.js";

const $ = (id) => document.getElementById(id);
const parallel = 2; // uploads that are sent at once; a browser opens six connections to a host

// --- what is stored

let newest = 0; // number of the last load that was begun: answers to earlier ones come too late

async function load() {
	const mine = ++newest;
	try {
		const answer = await fetch("/api/files");
		const files = await answer.json();
		if (!answer.ok) throw new Error(files.detail);
		if (mine !== newest) return;
		$("files").replaceChildren(...files.map(fileRow));
		$("empty").hidden = files.length > 0;
		const total = files.reduce((sum, file) => sum + file.size, 0);
		$("summary").textContent = files.length === 1 ? `1 file, ${bytes(total)}` : `${files.length} files, ${bytes(total)}`;
	} catch {
		show("The list can’t be loaded.");
	}
}

function fileRow(file) {
	const row = copy("file");
	const url = "/files/" + encodeURIComponent(file.name);
	const modified = new Date(file.modified);
	row.querySelector(".kind").textContent = kind(file.name);
	row.querySelector(".name").textContent = file.name;
	row.querySelector(".name").title = file.name;
	row.querySelector(".name").href = url;
	row.querySelector(".size").textContent = bytes(file.size);
	row.querySelector("time").dateTime = file.modified;
	row.querySelector("time").textContent = when(modified);
	row.querySelector(".download").href = url;
	row.querySelector(".download").download = file.name;
	row.querySelector(".download").ariaLabel = `Download ${file.name}`;
	row.querySelector(".delete").ariaLabel = `Delete ${file.name}`;
	row.querySelector(".delete").addEventListener("click", () => remove(file.name, url));
	return row;
}

async function remove(name, url) {
	if (!confirm(`Delete “${name}” for everybody?`)) return;
	const answer = await fetch(url, { method: "DELETE" }).catch(() => null);
	if (answer?.ok || answer?.status === 404) speak(`${name} was deleted`);
	else show(`“${name}” couldn’t be deleted.`);
	await load();
	$("files").querySelector(".name")?.focus();
}

// The server says when something has changed. After a break, anything may have.
const events = new EventSource("/api/events");
events.onopen = load;
events.onmessage = load;
events.addEventListener("reset", load);

// --- uploads

const uploads = new Map(); // by upload, its row

function add(files) {
	$("error").hidden = true;
	for (const file of files) {
		// A file that was begun before the page was loaded goes on.
		const known = [...uploads.keys()].find((u) => u.state === "lost" && u.fits(file));
		if (known) {
			known.file = file;
			known.state = "waiting";
			draw(known);
			continue;
		}
		addUpload(new Upload(file, file, draw));
	}
	next();
}

function addUpload(upload) {
	const row = copy("upload");
	uploads.set(upload, row);
	row.querySelector(".kind").textContent = kind(upload.name);
	row.querySelector(".name").textContent = upload.name;
	row.querySelector("progress").ariaLabel = `Upload of ${upload.name}`;
	row.querySelector(".toggle").addEventListener("click", () => toggle(upload));
	row.querySelector(".cancel").addEventListener("click", () => cancel(upload));
	$("uploads").append(row);
	$("sending").hidden = false;
	draw(upload);
}

// next begins those that wait, as far as there is room.
function next() {
	const sending = [...uploads.keys()].filter((u) => u.state === "sending").length;
	const waiting = [...uploads.keys()].filter((u) => u.state === "waiting");
	for (const upload of waiting.slice(0, Math.max(parallel - sending, 0))) {
		upload.send().then(() => {
			if (upload.state === "done") speak(`${upload.name} was uploaded`);
			if (upload.state === "failed") speak(`${upload.name} couldn’t be uploaded: ${upload.error}`);
			next();
		});
	}
}

function toggle(upload) {
	switch (upload.state) {
	case "lost":
		$("chosen").click();
		return;
	case "sending":
	case "waiting":
		upload.pause();
		break;
	default:
		upload.state = "waiting";
		draw(upload);
	}
	next();
}

function cancel(upload) {
	upload.cancel();
	uploads.get(upload).remove();
	uploads.delete(upload);
	$("sending").hidden = uploads.size === 0;
	remember();
	if (upload.state === "sending") upload.state = "paused";
	next();
	($("uploads").querySelector(".cancel") ?? $("chosen")).focus();
}

function draw(upload) {
	const row = uploads.get(upload);
	if (!row) return;
	const part = upload.size === 0 ? Number(upload.state === "done") : upload.sent / upload.size;
	row.dataset.state = upload.state;
	row.querySelector("progress").value = part;
	row.querySelector(".percent").textContent = `${Math.floor(100 * part)} %`;
	row.querySelector(".detail").textContent = detail(upload);
	row.querySelector(".rate").textContent = upload.state === "sending" && upload.rate > 0 ? rate(upload) : "";
	const verbs = { sending: "Pause", waiting: "Pause", lost: "Choose again" };
	row.querySelector(".toggle").ariaLabel = `${verbs[upload.state] ?? "Resume"} ${upload.name}`;
	row.querySelector(".toggle").title = verbs[upload.state] ?? "Resume";
	row.querySelector(".cancel").ariaLabel = `${upload.state === "done" ? "Dismiss" : "Cancel"} ${upload.name}`;
	row.querySelector(".cancel").title = upload.state === "done" ? "Dismiss" : "Cancel";
	remember();
}

function detail(upload) {
	const amount = `${bytes(upload.sent)} of ${bytes(upload.size)}`;
	switch (upload.state) {
	case "waiting": return `${bytes(upload.size)}, waiting`;
	case "paused": return `${amount}, paused`;
	case "lost": return `${amount} have come; choose the file again to go on`;
	case "done": return `${bytes(upload.size)}, done`;
	case "failed": return upload.error;
	default: return upload.error ? `${upload.error} Trying again …` : amount;
	}
}

function rate(upload) {
	const seconds = Math.ceil((upload.size - upload.sent) / upload.rate);
	const left = seconds < 90 ? `${seconds} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
	return `${bytes(upload.rate)}/s, ${left} left`;
}

// remember keeps what is unfinished for when the page is loaded again. The bytes are the server's to know.
let remembered = "";

function remember() {
	const unfinished = [...uploads.keys()].filter((u) => u.url && u.state !== "done");
	const text = JSON.stringify(unfinished.map(({ name, size, modified, url }) => ({ name, size, modified, url })));
	if (text === remembered) return;
	remembered = text;
	localStorage.setItem("uploads", text);
}

async function recall() {
	let known = [];
	try {
		known = JSON.parse(localStorage.getItem("uploads")) ?? [];
	} catch {
		// What isn't ours is overwritten.
	}
	const found = known.map((one) => new Upload(null, one, draw));
	const alive = await Promise.all(found.map((upload) => upload.recall()));
	found.filter((_, i) => alive[i]).forEach(addUpload);
	remember();
}

$("chosen").addEventListener("change", () => {
	add($("chosen").files);
	$("chosen").value = ""; // so that the same file can be chosen again
});

let depth = 0; // how many elements under the pointer something is dragged over

addEventListener("dragenter", (event) => drag(event, 1));
addEventListener("dragleave", (event) => drag(event, -1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
	drag(event, -depth);
	// A folder has no bytes, and comes as a file that can't be read.
	const items = [...event.dataTransfer.items].filter((item) => item.kind === "file" && !item.webkitGetAsEntry?.()?.isDirectory);
	add(items.map((item) => item.getAsFile()));
});

function drag(event, change) {
	event.preventDefault();
	depth += change;
	document.body.classList.toggle("dragging", depth > 0);
}

addEventListener("beforeunload", (event) => {
	if ([...uploads.keys()].some((u) => u.state === "sending" || u.state === "waiting")) event.preventDefault();
});

// --- small things

function copy(id) {
	return $(id).content.firstElementChild.cloneNode(true);
}

function bytes(n) {
	const units = ["B", "kB", "MB", "GB", "TB"];
	let i = 0;
	for (; n >= 999.5 && i < units.length - 1; i++) n /= 1000;
	return `${i > 0 && n < 99.95 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

// when writes a time as this browser's user does, and in which zone; the year is only that of another one.
function when(time) {
	const year = time.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
	return time.toLocaleString(undefined, { year, month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short" });
}

function kind(name) {
	const extension = name.lastIndexOf(".") > 0 ? name.slice(name.lastIndexOf(".") + 1) : "";
	return extension.length <= 4 ? extension : "";
}

function show(text) {
	$("error").textContent = text;
	$("error").hidden = false;
}

function speak(text) {
	$("spoken").textContent = text;
}

load();
recall();
