// The page's whole program. The server has the state: after each change the list is what the server says it is.

const $ = (id) => document.getElementById(id);
const list = $("todos");

let next = 0; // where the next page begins, 0 if there is none
let newest = 0; // number of the last load that was begun: answers to earlier ones come too late

// call asks the API, and returns what it answers with. An error has the reason for people to read.
async function call(method, path, body) {
	const options = { method, headers: { Accept: "application/json" } };
	if (body !== undefined) {
		options.headers["Content-Type"] = "application/json";
		options.body = JSON.stringify(body);
	}
	let response;
	try {
		response = await fetch("/api/todos" + path, options);
	} catch {
		throw new Error("The server can’t be reached.");
	}
	if (response.status === 204) return null;
	const answer = await response.json().catch(() => ({}));
	if (!response.ok) {
		const reasons = (answer.errors ?? []).map((e) => `${e.pointer ?? e.name ?? ""} ${e.detail}`.replace(/^\//, "").trim());
		throw new Error(reasons.join("; ") || answer.detail || `The server answered with ${response.status}.`);
	}
	return answer;
}

// attempt runs an action with its control disabled, and shows what goes wrong.
async function attempt(control, action) {
	$("error").hidden = true;
	control.disabled = true;
	try {
		await action();
		return true;
	} catch (error) {
		$("error").textContent = error.message;
		$("error").hidden = false;
		return false;
	} finally {
		control.disabled = false;
	}
}

const filter = () => document.querySelector("[name=filter]:checked").value;

// load shows the list from its beginning, or what follows the rows that are there.
async function load(more = false) {
	const mine = ++newest;
	const page = await call("GET", `?filter=${filter()}` + (more ? `&before=${next}` : ""));
	if (mine !== newest) return;
	const rows = page.todos.map(row);
	if (more) list.append(...rows);
	else list.replaceChildren(...rows);
	next = page.next ?? 0;
	$("more").hidden = next === 0;
	$("counts").textContent = `${page.open} open, ${page.done} done`;
	$("empty").hidden = list.childElementCount > 0;
	$("empty").textContent = { all: "Nothing to do yet.", open: "All done.", done: "Nothing is done yet." }[filter()];
}

function row(todo) {
	const item = $("row").content.firstElementChild.cloneNode(true);
	const box = item.querySelector("input");
	const remove = item.querySelector(".delete");
	item.querySelector(".text").textContent = todo.title;
	box.id = `todo-${todo.id}`;
	box.checked = todo.done;
	remove.setAttribute("aria-label", `Delete “${todo.title}”`);
	box.addEventListener("change", async () => {
		const ticked = await attempt(box, () => call("PATCH", `/${todo.id}`, { done: box.checked }));
		if (!ticked) box.checked = !box.checked;
		await refresh();
		$(box.id)?.focus();
	});
	remove.addEventListener("click", async () => {
		const neighbour = (item.nextElementSibling ?? item.previousElementSibling)?.querySelector("input").id;
		await attempt(remove, () => call("DELETE", `/${todo.id}`));
		await refresh();
		($(neighbour) ?? $("title")).focus();
	});
	return item;
}

// refresh loads the list anew. What went wrong before stays on show.
async function refresh() {
	try {
		await load();
	} catch (error) {
		$("error").textContent = error.message;
		$("error").hidden = false;
	}
}

$("add").addEventListener("submit", async (event) => {
	event.preventDefault();
	const title = $("title").value;
	const added = await attempt(event.submitter ?? $("add").querySelector("button"), () => call("POST", "", { title }));
	if (added) {
		$("title").value = "";
		await refresh();
	}
	$("title").focus();
});

$("filters").addEventListener("change", () => {
	history.replaceState(null, "", filter() === "all" ? location.pathname : `#${filter()}`);
	$("error").hidden = true;
	refresh();
});

$("more").addEventListener("click", () => attempt($("more"), () => load(true)));

const wanted = document.querySelector(`[name=filter][value="${CSS.escape(location.hash.slice(1))}"]`);
if (wanted) wanted.checked = true;
refresh();
