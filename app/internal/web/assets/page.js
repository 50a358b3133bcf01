"use strict";
// The page is rendered on the server. This script patches it from the event stream, opens rows in place and sends the two actions.
// Text is only ever set as text; HTML comes from our own templates, which escape.
(() => {
const root = document.documentElement;
root.classList.add("js");
const $ = (id) => document.getElementById(id);

// ── theme, before the first paint ──
const themes = ["system", "light", "dark"];
let theme = "system";
try { theme = localStorage.getItem("theme") || theme; } catch { /* no storage: the system's */ }
function applyTheme() {
	if (!themes.includes(theme)) theme = "system";
	if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
	if ($("theme")) $("theme").textContent = "theme: " + theme;
}
applyTheme();

// ── small things ──
function el(tag, attributes, ...children) {
	const node = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
	node.append(...children);
	return node;
}
let clockAhead = 0; // of the server's clock, ms
const pad = (n, width) => String(n).padStart(width, "0");
function exact(t) {
	return t.getUTCFullYear() + "-" + pad(t.getUTCMonth() + 1, 2) + "-" + pad(t.getUTCDate(), 2) + " " + pad(t.getUTCHours(), 2) + ":" + pad(t.getUTCMinutes(), 2) + ":" +
		pad(t.getUTCSeconds(), 2) + "." + pad(t.getUTCMilliseconds(), 3) + " UTC";
}
function ago(t) {
	const s = Math.floor((Date.now() + clockAhead - t) / 1000);
	if (s < 5) return "now";
	if (s < 60) return s + " s ago";
	if (s < 3600) return Math.floor(s / 60) + " min ago";
	if (s < 86400) return Math.floor(s / 3600) + " h ago";
	return Math.floor(s / 86400) + " d ago";
}
function time(text) {
	const t = new Date(text);
	return el("time", { datetime: text, title: exact(t) }, ago(t));
}
function millis(ms) {
	if (ms < 1000) return ms + " ms";
	if (ms < 60000) return (ms / 1000).toFixed(2) + " s";
	if (ms < 3600000) return Math.floor(ms / 60000) + " min " + Math.floor(ms / 1000) % 60 + " s";
	return Math.floor(ms / 3600000) + " h " + Math.floor(ms / 60000) % 60 + " min";
}
function size(n) {
	if (n <= 0) return "–";
	return n < 1 << 20 ? (n / 1024).toFixed(0) + " KiB" : (n / (1 << 20)).toFixed(1) + " MiB";
}

// ── states: the same table as on the server ──
const words = { AC: "accepted", WA: "wrong answer", TLE: "time limit", MLE: "memory limit", OLE: "output limit", RTE: "run-time error", CE: "compile error", JE: "judge error" };
function stateOf(s) {
	if (s.verdict) {
		const v = s.verdict.verdict;
		return [v === "AC" ? "done" : "failed", v === "AC" ? "●" : v === "JE" ? "▲" : "◆", v + " " + (words[v] || "")];
	}
	switch (s.state) {
	case "pending": return ["waiting", "○", "queued"];
	case "running": return ["running", "◐", s.progress || "running"];
	case "waiting": return ["waiting", "○", "waiting"];
	case "cancelled": return ["waiting", "⊘", "cancelled"];
	}
	return ["failed", "▲", s.state];
}
function stateNode([cls, shape, word]) {
	return el("span", { class: "state " + cls }, el("span", { class: "shape", "aria-hidden": "true" }, shape), " " + word);
}

// ── rows ──
const seen = new Map(); // by id: the newest JSON text, and whether the verdict was there
let rows, body;
function fillRow(tr, s) {
	const state = stateOf(s);
	tr.dataset.text = ["#" + s.id, s.problem, s.language, s.filename, s.state, state[2], s.refused ? "refused" : ""].join(" ").toLowerCase();
	const cell = (name, ...children) => tr.querySelector(".c-" + name).replaceChildren(...children);
	const epoch = el("span", { class: "epoch" });
	if (s.generation > 1) epoch.append(el("span", { class: "past" }, s.generation - 1 + " → "));
	epoch.append(String(s.generation));
	cell("epoch", epoch);
	if (s.refused) tr.querySelector(".c-epoch").append(" ", el("span", { class: "fence", title: "a write of generation " + s.refused.generation + " was refused" }, s.refused.generation + " ✕ " + s.refused.current));
	cell("state", stateNode(state));
	if (!s.verdict && s.before) tr.querySelector(".c-state").prepend(el("s", { class: "before", title: "the verdict of the generation before" }, s.before.verdict), " ");
	cell("problem", s.problem);
	cell("language", s.language);
	cell("file", s.filename);
	tr.querySelector(".c-file").title = s.filename;
	cell("time", s.verdict ? millis(s.verdict.time_ms) : "");
	cell("memory", s.verdict ? size(s.verdict.memory_bytes) : "");
	cell("when", time(s.created_at));
}
function newRow(s) {
	const tr = el("tr", { class: "row", "data-id": s.id });
	for (const name of ["id num", "epoch", "state", "problem", "language", "file", "time num", "memory num", "when num"]) tr.append(el("td", { class: "c-" + name }));
	tr.querySelector(".c-id").append(el("a", { class: "open", href: "/submissions/" + s.id, "aria-expanded": "false" }, String(s.id)));
	let after = null;
	for (const other of body.querySelectorAll("tr.row")) if (Number(other.dataset.id) < s.id) { after = other; break; }
	body.insertBefore(tr, after);
	return tr;
}
const rowOf = (id) => body && body.querySelector('tr.row[data-id="' + Number(id) + '"]');
function show(s, quietly) {
	const text = JSON.stringify(s), before = seen.get(s.id);
	if (before && before.text === text) return;
	seen.set(s.id, { text, generation: s.generation, verdict: s.verdict && s.verdict.verdict });
	const older = rows && rows.dataset.older;
	if (rows && !(older && !rowOf(s.id))) {
		const tr = rowOf(s.id) || newRow(s);
		fillRow(tr, s);
		filterRow(tr);
		if (!quietly) { tr.classList.remove("changed"); void tr.offsetWidth; tr.classList.add("changed"); }
		if (tr.classList.contains("is-open")) refresh(s.id);
	}
	if ($("alone") && Number($("alone").dataset.id) === s.id) refresh(s.id);
	if (!quietly && s.verdict && (!before || before.generation !== s.generation || before.verdict !== s.verdict.verdict))
		$("announce").textContent = "Submission " + s.id + ", generation " + s.generation + ": " + stateOf(s)[2];
}
function counted() {
	if (!rows) return;
	const all = body.querySelectorAll("tr.row"), shown = [...all].filter((tr) => !tr.hidden).length;
	$("count").textContent = $("q").value.trim() ? shown + " of " + all.length : all.length;
	rows.hidden = all.length === 0;
	$("empty").hidden = all.length > 0;
	$("none").hidden = all.length === 0 || shown > 0;
}

// ── filter ──
function filterRow(tr) {
	const wanted = $("q").value.toLowerCase().split(/\s+/).filter(Boolean);
	tr.hidden = !wanted.every((word) => tr.dataset.text.includes(word));
	const opened = tr.nextElementSibling;
	if (opened && opened.classList.contains("opened")) opened.hidden = tr.hidden;
}
function filter() {
	for (const tr of body.querySelectorAll("tr.row")) filterRow(tr);
	const url = new URL(location.href);
	if ($("q").value) url.searchParams.set("q", $("q").value); else url.searchParams.delete("q");
	history.replaceState(null, "", url);
	counted();
}

// ── opening a row; its content is the server's HTML, patched in place ──
const fetching = new Map(); // by id: whether it must be fetched once more
async function refresh(id) {
	if (fetching.has(id)) { fetching.set(id, true); return; }
	fetching.set(id, false);
	try {
		const place = () => $("alone") || (body && body.querySelector('tr.opened[data-for="' + id + '"] > td'));
		const slow = setTimeout(() => { if (place() && !place().firstElementChild) place().textContent = "loading …"; }, 200);
		let part;
		try {
			const answer = await fetch("/submissions/" + id + "?part=detail");
			if (!answer.ok) throw new Error("submission " + id + " could not be read (status " + answer.status + "): close the row and open it again");
			part = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".detail");
		} catch (error) {
			part = el("p", { class: "answer bad" }, error instanceof TypeError ? "the server does not answer: the row is read again as soon as it does" : error.message);
		}
		clearTimeout(slow);
		const to = place();
		if (!to) return;
		if (to.firstElementChild && to.firstElementChild.className === part.className) morph(to.firstElementChild, part); else to.replaceChildren(part);
		decorate(to);
	} finally {
		const again = fetching.get(id);
		fetching.delete(id);
		if (again) refresh(id);
	}
}
// morph makes one element like another without replacing what is alike, so that focus, selection and scroll stay.
function morph(have, want) {
	for (const { name } of [...have.attributes]) if (!want.hasAttribute(name)) have.removeAttribute(name);
	for (const { name, value } of [...want.attributes]) if (have.getAttribute(name) !== value) have.setAttribute(name, value);
	if (have.hasAttribute("data-keep")) return;
	const wanted = [...want.childNodes];
	const own = [...have.childNodes].filter((n) => !(n.nodeType === 1 && n.hasAttribute("data-ours")));
	wanted.forEach((to, i) => {
		const from = own[i];
		if (!from) have.append(to);
		else if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) from.replaceWith(to);
		else if (from.nodeType === 1) morph(from, to);
		else if (from.data !== to.data) from.data = to.data;
	});
	for (const extra of own.slice(wanted.length)) extra.remove();
}
function toggle(tr, open) {
	const is = tr.classList.contains("is-open");
	if (open === undefined) open = !is;
	if (open === is) return;
	tr.classList.toggle("is-open", open);
	tr.querySelector(".open").setAttribute("aria-expanded", String(open));
	if (open) {
		tr.after(el("tr", { class: "opened", "data-for": tr.dataset.id }, el("td", { colspan: "9" })));
		refresh(Number(tr.dataset.id));
	} else {
		const opened = tr.nextElementSibling, inside = opened.contains(document.activeElement);
		opened.remove();
		if (inside) tr.querySelector(".open").focus();
	}
}
function decorate(within) {
	for (const code of within.querySelectorAll("code.copy")) {
		if (code.querySelector("button")) continue;
		code.append(el("button", { type: "button", class: "quiet", "data-ours": "", "aria-label": "Copy the command" }, "copy"));
	}
}
async function copy(button) {
	const text = [...button.parentElement.childNodes].filter((n) => n !== button).map((n) => n.textContent).join("");
	try {
		await navigator.clipboard.writeText(text);
		button.textContent = "copied";
	} catch {
		getSelection().selectAllChildren(button.parentElement);
		button.textContent = "selected";
	}
	setTimeout(() => { button.textContent = "copy"; }, 1500);
}

// ── actions ──
async function post(path, value) {
	let answer;
	try {
		answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
	} catch {
		throw new Error("the server does not answer: nothing was sent twice, try again when the connection is back");
	}
	const result = await answer.json().catch(() => ({}));
	if (!answer.ok) throw new Error(result.detail || "the server answered with status " + answer.status);
	return result;
}
async function act(form, answer, work) {
	const button = form.querySelector(".act button");
	if (button.disabled) return;
	button.disabled = true;
	answer.className = "answer";
	answer.textContent = "";
	try {
		answer.textContent = await work();
	} catch (error) {
		answer.classList.add("bad");
		answer.textContent = error.message;
	} finally {
		button.disabled = false;
	}
}
let file = null; // what was chosen: name, bytes, and its text when it is text
async function chooseFile(form) {
	const chosen = form.elements.file.files[0];
	file = null;
	if (!chosen) return;
	const bytes = new Uint8Array(await chosen.arrayBuffer());
	file = { name: chosen.name, bytes, text: null };
	try { file.text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { /* not text: sent as bytes */ }
	form.elements.source.value = file.text === null ? "" : file.text;
	const ending = (/\.[^.]+$/.exec(chosen.name.toLowerCase()) || [""])[0];
	const option = [...form.elements.language.options].find((o) => !o.disabled && o.dataset.extensions.split(" ").includes(ending));
	if (option) form.elements.language.value = option.value;
}
function submission(form) {
	const { problem, language, source } = form.elements, option = language.selectedOptions[0];
	const out = { problem: problem.value, language: language.value, filename: file ? file.name : "main" + (option ? option.dataset.extensions.split(" ")[0] : "") };
	if (file && file.text === null && !source.value) {
		let binary = "";
		for (const byte of file.bytes) binary += String.fromCharCode(byte);
		out.source_base64 = btoa(binary);
	} else {
		out.source = source.value;
	}
	return out;
}
function submit(form) {
	act(form, $("submit-answer"), async () => {
		const { id, generation } = await post("/v1/submissions", submission(form));
		opening = id;
		const tr = rowOf(id);
		if (tr) openNew(tr);
		return "submission " + id + " is stored; generation " + generation + " waits to be judged";
	});
}
let opening = 0; // the submission that opens as soon as its row is there
function openNew(tr) {
	opening = 0;
	toggle(tr, true);
	tr.querySelector(".open").focus();
}
function rejudge(form) {
	const id = Number(form.dataset.id);
	act(form, form.querySelector(".answer"), async () => {
		const { before, now } = await post("/v1/submissions/" + id + "/rejudge", { generation: Number(form.dataset.generation), reason: form.elements.reason.value });
		form.elements.reason.value = "";
		refresh(id);
		return "generation " + before + " → " + now;
	});
}

// ── the event stream ──
let stream, lastWord = 0;
function connect() {
	if (stream) stream.close();
	stream = new EventSource("/v1/events");
	stream.addEventListener("snapshot", (event) => {
		const { now, submissions } = JSON.parse(event.data);
		clockAhead = Date.parse(now) - Date.now();
		live(true);
		const first = seen.size === 0;
		if (rows && !rows.dataset.older) {
			const known = new Set(submissions.map((s) => s.id)), oldest = submissions.length ? submissions[submissions.length - 1].id : 0;
			for (const tr of body.querySelectorAll("tr.row")) {
				const id = Number(tr.dataset.id);
				if (id >= oldest && !known.has(id)) { toggle(tr, false); tr.remove(); seen.delete(id); }
			}
		}
		for (const s of submissions.reverse()) changed(s, first);
		counted();
		ages();
		fresh();
	});
	stream.addEventListener("submission", (event) => {
		changed(JSON.parse(event.data));
		counted();
		fresh();
	});
	stream.onerror = () => {
		live(false);
		// A browser gives up for good on some answers; we do not.
		if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
	};
}
function changed(s, quietly) {
	show(s, quietly);
	if (opening === s.id && rowOf(s.id)) openNew(rowOf(s.id));
}
function live(is) {
	const sign = $("live"), text = is ? "● live" : "▲ connection lost, trying again";
	if (sign.textContent !== text) sign.textContent = text;
	sign.classList.toggle("lost", !is);
}
// fresh reads the parts of other pages again, at most once a second.
let freshening = 0;
function fresh() {
	if (freshening || !document.querySelector("[data-fresh]")) return;
	freshening = setTimeout(async () => {
		freshening = 0;
		try {
			const answer = await fetch(location.href);
			if (!answer.ok) return;
			const page = new DOMParser().parseFromString(await answer.text(), "text/html");
			morph($("main"), page.getElementById("main"));
			decorate($("main"));
		} catch { /* the stream says that the connection is lost */ }
	}, Math.max(0, 1000 - (Date.now() - lastWord)));
	lastWord = Date.now();
}
function ages() {
	for (const node of document.querySelectorAll("time[datetime]")) {
		const text = ago(new Date(node.dateTime));
		if (node.textContent !== text) node.textContent = text;
	}
}

// ── keyboard and mouse ──
function step(by) {
	const links = [...document.querySelectorAll("tr.row:not([hidden]) .open")];
	if (!links.length) return;
	const row = document.activeElement.closest && document.activeElement.closest("tr.row, tr.opened");
	let at = -1;
	if (row) at = links.findIndex((link) => link.closest("tr") === (row.classList.contains("row") ? row : row.previousElementSibling));
	const link = links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)];
	link.focus({ preventScroll: true });
	link.closest("tr").scrollIntoView({ block: "nearest" });
}
function key(event) {
	const inside = event.target.closest && event.target.closest("input, textarea, select");
	if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.closest("#submit-form")) {
		event.preventDefault();
		submit($("submit-form"));
		return;
	}
	if (event.key === "Escape") {
		if (document.querySelector("dialog[open]")) return;
		const row = document.activeElement.closest("tr.row, tr.opened");
		if (row) toggle(row.classList.contains("row") ? row : row.previousElementSibling, false);
		else if (inside) inside.blur();
		else for (const tr of document.querySelectorAll("tr.is-open")) toggle(tr, false);
		return;
	}
	if (inside || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
	if (event.key === "/" && $("q")) $("q").select();
	else if (event.key === "j") step(1);
	else if (event.key === "k") step(-1);
	else if (event.key === "?") $("keys").showModal();
	else return;
	event.preventDefault();
}
function click(event) {
	const button = event.target.closest(".copy button");
	if (button) return void copy(button);
	if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
	const tr = event.target.closest("tr.row");
	if (!tr || (!event.target.closest(".open") && String(getSelection()))) return;
	event.preventDefault();
	tr.querySelector(".open").focus({ preventScroll: true });
	toggle(tr);
}
document.addEventListener("DOMContentLoaded", () => {
	clockAhead = Date.parse(document.body.dataset.now) - Date.now();
	rows = $("rows");
	body = rows && rows.tBodies[0];
	applyTheme();
	$("theme").addEventListener("click", () => {
		theme = themes[(themes.indexOf(theme) + 1) % themes.length];
		try { localStorage.setItem("theme", theme); } catch { /* kept for this page only */ }
		applyTheme();
	});
	$("keys-open").addEventListener("click", () => $("keys").showModal());
	for (const link of document.querySelectorAll("tr.row .open")) link.setAttribute("aria-expanded", "false");
	decorate(document);
	if (rows) {
		$("q").addEventListener("input", filter);
		$("q").form.addEventListener("submit", (event) => event.preventDefault());
		$("submit-form").elements.file.addEventListener("change", () => chooseFile($("submit-form")));
		if (rows.hidden) $("submit").open = true;
	}
	document.addEventListener("submit", (event) => {
		if (event.target.id === "submit-form") { event.preventDefault(); submit(event.target); }
		if (event.target.classList.contains("rejudge")) { event.preventDefault(); rejudge(event.target); }
	});
	document.addEventListener("keydown", key);
	document.addEventListener("click", click);
	setInterval(ages, 10000);
	connect();
});
// A tab that was frozen or came back from the browser's cache starts again from a snapshot.
addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
document.addEventListener("resume", () => connect());
})();
