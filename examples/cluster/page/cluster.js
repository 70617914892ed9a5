// The page says what it says again until it has an answer, and shows each message once, by its key.

const element = (id) => document.getElementById(id);
const list = element("messages");
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const seen = new Set(); // keys of messages that are shown
const fed = new Set(); // keys of messages that came by the feed
const served = {}; // how many messages each instance has published
const counts = { sent: 0, acknowledged: 0, failed: 0, shown: 0, twice: 0, reconnects: 0, gaps: 0, session: 0 };
const maxShown = 200;

function count(name, n = counts[name] + 1) {
	counts[name] = n;
	element(name).textContent = n;
}

// show shows a message that isn't shown yet.
function show(message) {
	if (seen.has(message.key)) return;
	seen.add(message.key);
	served[message.by] = (served[message.by] ?? 0) + 1;
	count("shown");
	const item = document.createElement("li");
	item.dataset.by = message.by;
	const by = document.createElement("b");
	by.textContent = message.by;
	const text = document.createElement("span");
	text.textContent = message.text;
	item.append(by, text);
	list.append(item);
	while (list.children.length > maxShown) list.firstChild.remove();
	stay();
}

// The list stays at its end if it was there, also when the window becomes smaller.
let atEnd = true;

function stay() {
	if (atEnd) list.scrollTop = list.scrollHeight;
}

// look shows the messages that Redis has kept.
async function look() {
	for (;;) {
		try {
			const response = await fetch("/messages");
			if (response.ok) {
				for (const message of await response.json()) show(message);
				return;
			}
		} catch {}
		await sleep(300);
	}
}

// listen follows the feed. An EventSource reconnects by itself, and names its last event; one that was refused is closed, and another
// one begins.
function listen() {
	const feed = new EventSource("/feed");
	let first = true;
	feed.onopen = () => {
		if (first) look();
		else count("reconnects");
		first = false;
	};
	feed.onmessage = (event) => {
		const message = JSON.parse(event.data);
		if (fed.has(message.key)) count("twice");
		fed.add(message.key);
		show(message);
	};
	feed.addEventListener("reset", () => {
		count("gaps");
		look();
	});
	feed.onerror = async () => {
		if (feed.readyState !== EventSource.CLOSED) return;
		count("reconnects");
		await sleep(300);
		listen();
	};
}

// say sends a message, until it is answered. An answer that says that the message can't be taken is an error.
async function say(text) {
	const key = crypto.randomUUID();
	const body = JSON.stringify({ key, text });
	count("sent");
	for (;;) {
		try {
			const response = await fetch("/say", {
				method: "POST",
				headers: { "Content-Type": "application/json", "Idempotency-Key": key },
				body,
			});
			if (response.ok) {
				count("session", (await response.json()).said);
				count("acknowledged");
				return;
			}
			if (response.status < 500 && response.status !== 409 && response.status !== 429) {
				notice(`${response.status}: ${await response.text()}`);
				return;
			}
		} catch {}
		count("failed");
		await sleep(300);
	}
}

function notice(text) {
	element("notice").textContent = text;
}

const cards = {};

// status shows the state of the instances.
async function status() {
	try {
		const answer = await (await fetch("/cluster/status")).json();
		const feed = document.cookie.match(/(?:^|; )feed=(\w+)/)?.[1];
		for (const instance of answer.instances) {
			const card = (cards[instance.name] ??= newCard(instance.name));
			card.dataset.state = instance.state;
			card.children[1].textContent = instance.state + (feed === instance.name ? ", your feed" : "");
			card.children[2].textContent = `process ${instance.pid}, start ${instance.starts}`;
			card.children[3].textContent = `${served[instance.name] ?? 0} messages`;
		}
		element("restart").disabled = element("kill").disabled = answer.restarting;
		document.body.dataset.rounds = answer.rounds;
		notice(answer.failed ?? (answer.restarting ? "restarting…" : answer.rounds ? `${answer.rounds} restarts` : ""));
	} catch (error) {
		notice("The supervisor doesn't answer.");
	}
	setTimeout(status, 200);
}

function newCard(name) {
	const card = document.createElement("article");
	card.className = "instance";
	card.dataset.by = name;
	const title = document.createElement("h2");
	title.textContent = name;
	card.append(title, ...["state", "process", "served"].map((kind) => {
		const line = document.createElement("p");
		line.className = kind;
		return line;
	}));
	element("instances").append(card);
	return card;
}

// talk says something ten times a second while the box is checked.
let number = 0;
setInterval(() => {
	if (element("talk").checked) say(`message ${++number}`);
}, 100);

for (const what of ["restart", "kill"]) {
	element(what).addEventListener("click", async () => {
		element(what).disabled = true;
		const response = await fetch(`/cluster/${what}`, { method: "POST" });
		if (!response.ok) notice(await response.text());
	});
}

element("say").addEventListener("submit", (event) => {
	event.preventDefault();
	const text = element("text").value.trim();
	if (!text) return;
	element("text").value = "";
	say(text);
});

list.addEventListener("scroll", () => {
	atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 50;
});
new ResizeObserver(stay).observe(list);

listen();
status();

// What the test looks at.
window.cluster = { counts, seen };
