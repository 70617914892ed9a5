// An upload by the tus protocol, 1.0.0: POST makes it, HEAD asks how much has come, PATCH sends the rest. It tells its owner with
// change(upload) what becomes of it.

const protocol = { "Tus-Resumable": "1.0.0" };

// A connection that breaks is tried again after 1, 2, 4, … seconds, and given up if nothing came in so many attempts.
const attempts = 6;
const longest = 15_000; // milliseconds

export class Upload {
	state = "waiting"; // sending, paused, lost (the file must be chosen again), done, failed
	sent = 0; // bytes, as far as known
	rate = 0; // bytes a second
	error = "";
	#stop = null; // of what is under way
	#change;

	// file is null if only what is known of it is left: name, size and url.
	constructor(file, known, change) {
		this.file = file;
		this.name = known.name;
		this.size = known.size;
		this.modified = known.modified ?? known.lastModified;
		this.url = known.url ?? "";
		this.#change = change;
		if (!file) this.state = "lost";
	}

	// fits tells whether a file is the one of which a part has come.
	fits(file) {
		return file.name === this.name && file.size === this.size && file.lastModified === this.modified;
	}

	// send sends until all has come, it is paused, or it has failed.
	async send() {
		this.#stop = new AbortController();
		const signal = this.#stop.signal;
		this.#become("sending");
		for (let attempt = 0; ; attempt++) {
			const before = this.sent;
			try {
				await this.#create(signal);
				await this.#ask(signal);
				if (this.sent < this.size) await this.#patch(signal);
				return this.#become("done");
			} catch (error) {
				if (signal.aborted) return;
				if (this.sent > before) attempt = 0;
				if (!error.temporary || attempt >= attempts) return this.#become("failed", error.message);
				this.rate = 0;
				this.#become("sending", error.message);
			}
			await delay(Math.min(1000 * 2 ** attempt, longest), signal);
			if (signal.aborted) return;
		}
	}

	pause() {
		this.#stop?.abort();
		this.rate = 0;
		this.#become("paused");
	}

	// cancel has the server forget it.
	async cancel() {
		this.#stop?.abort();
		if (!this.url || this.state === "done") return;
		// The server may not have noticed yet that the connection is gone.
		for (let attempt = 0; attempt < attempts; attempt++) {
			const answer = await fetch(this.url, { method: "DELETE", headers: protocol }).catch(() => null);
			if (answer?.status !== 423) return;
			await delay(200 * 2 ** attempt);
		}
	}

	// recall asks the server how much it has, and tells whether it knows the upload at all.
	async recall() {
		try {
			await this.#ask(new AbortController().signal);
		} catch (error) {
			return error.temporary;
		}
		return this.sent < this.size;
	}

	async #create(signal) {
		if (this.url) return;
		const metadata = `filename ${base64(this.name)}`;
		const headers = { ...protocol, "Upload-Length": this.size, "Upload-Metadata": metadata };
		const answer = await call("/uploads", { method: "POST", headers, signal });
		this.url = answer.headers.get("Location");
		this.#change(this);
	}

	async #ask(signal) {
		try {
			const answer = await call(this.url, { method: "HEAD", headers: protocol, signal });
			this.sent = Number(answer.headers.get("Upload-Offset"));
		} catch (error) {
			if (error.status === 404) [this.url, this.sent] = ["", 0]; // the next attempt begins anew
			throw error;
		}
		this.#change(this);
	}

	// fetch doesn't tell how much of a request has been sent, so this is an XMLHttpRequest.
	#patch(signal) {
		const from = this.sent;
		return new Promise((resolve, reject) => {
			const request = new XMLHttpRequest();
			const meter = new Meter();
			request.open("PATCH", this.url);
			request.setRequestHeader("Tus-Resumable", protocol["Tus-Resumable"]);
			request.setRequestHeader("Accept", "application/json");
			request.setRequestHeader("Upload-Offset", from);
			request.setRequestHeader("Content-Type", "application/offset+octet-stream");
			request.upload.onprogress = (event) => {
				this.sent = from + event.loaded;
				this.rate = meter.add(event.loaded);
				this.error = "";
				this.#change(this);
			};
			request.onload = () => {
				if (request.status !== 204) return reject(failure(request.status, request.responseText));
				this.sent = Number(request.getResponseHeader("Upload-Offset"));
				this.sent === this.size ? resolve() : reject(failure(0));
			};
			request.onerror = () => reject(failure(0));
			signal.addEventListener("abort", () => {
				request.abort();
				reject(failure(0));
			});
			request.send(this.file.slice(from));
		});
	}

	#become(state, error = "") {
		this.state = state;
		this.error = error;
		this.#change(this);
	}
}

// Meter measures bytes a second over the last seconds.
class Meter {
	#marks = [{ time: performance.now(), bytes: 0 }];

	add(bytes) {
		const time = performance.now();
		this.#marks.push({ time, bytes });
		while (this.#marks.length > 2 && time - this.#marks[0].time > 3000) this.#marks.shift();
		const { time: since, bytes: then } = this.#marks[0];
		return time > since ? (1000 * (bytes - then)) / (time - since) : 0;
	}
}

// call fetches, and has an error for what isn't a success.
async function call(url, options) {
	let answer;
	try {
		answer = await fetch(url, { ...options, headers: { ...options.headers, Accept: "application/json" } });
	} catch {
		throw failure(0);
	}
	if (!answer.ok) throw failure(answer.status, await answer.text());
	return answer;
}

// failure is an error that says whether to try again.
function failure(status, body = "") {
	let detail = "";
	try {
		detail = JSON.parse(body).detail;
	} catch {
		// It isn't from the server itself, or has no body.
	}
	const reasons = { 0: "The connection broke off.", 404: "The server doesn’t know the upload any more.", 423: "Another connection is still open." };
	const error = new Error(sentence(detail) || reasons[status] || `The server answered with ${status}.`);
	// 409: the offset was another one, which the next HEAD tells. 507 is a full disk, that needs somebody.
	error.status = status;
	error.temporary = [0, 408, 409, 423, 429, 500, 502, 503, 504].includes(status);
	return error;
}

function sentence(text) {
	return text ? text[0].toUpperCase() + text.slice(1) + "." : "";
}

function base64(text) {
	return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

function delay(milliseconds, signal) {
	return new Promise((resolve) => {
		const timer = setTimeout(resolve, milliseconds);
		signal?.addEventListener("abort", () => {
			clearTimeout(timer);
			resolve();
		});
	});
}
