"use strict";
// The page builds the state of the run from the lines of its trace. Names that programs choose reach the document as
// text nodes only. A frame is the state after an interval; objects that change are copied once for each frame, so that
// frames share the others.

const STATES = ["RESET", "INIT", "RTR", "RTS", "SQE", "ERR"];
const MINUTE = 60e3;
const COPIES = 60000; // of objects in all frames: when there are more, every second one of the older frames goes
const EACH = 2000; // entries of the maps of frames that a tick may add: if they suffice, each of its lines is a frame
const CARDS = 120, REQUESTS = 6, KEYS = 6, REMEMBERED = 24, LOG = 200;

const $ = id => document.getElementById(id);
const hex = n => "0x" + (n >>> 0).toString(16);

/** el makes an element. Its children are elements and texts. */
function el(tag, props, ...children) {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...children.filter(c => c !== null && c !== undefined && c !== ""));
  return e;
}
/** put sets the text of an element, if it is another one. */
function put(e, text) { if (e.textContent !== text) e.textContent = text; }

/** micros reads a time of the trace, which may have nanoseconds. */
function micros(time) {
  const f = /\.(\d+)/.exec(time);
  return Date.parse(time.replace(/\.\d+/, "")) * 1000 + (f ? Number("0." + f[1]) * 1e6 : 0);
}
function clock(us) {
  const d = new Date(us / 1000);
  return d.toLocaleTimeString([], {hour12: false}) + "." + String(Math.floor(us / 1000) % 1000).padStart(3, "0");
}
function span(us) { return us < 1e3 ? us.toFixed(1) + " µs" : us < 1e6 ? (us / 1e3).toFixed(2) + " ms" : (us / 1e6).toFixed(1) + " s"; }
function size(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000 || unit === "GB") return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit;
    n /= 1000;
  }
}
const many = n => n < 1e4 ? String(Math.round(n)) : n < 1e6 ? (n / 1e3).toFixed(1) + " k" : (n / 1e6).toFixed(2) + " M";

let now, frames, shown, live, chosen, copies, made = 0; // made: how many frames there were
function reset() {
  now = {at: 0, qps: new Map(), keys: new Map(), regions: new Map(), log: [], over: "", left: 0, copied: 0};
  frames = []; copies = 0; live = true; shown = null;
}

/** own returns an object that this frame may change. */
function own(map, id, make) {
  let o = map.get(id);
  if (o && o.frame === made) return o;
  if (!o && !make) return null;
  o = o ? {...o} : make();
  for (const k of ["states", "requests", "bad", "window", "keys"]) if (o[k]) o[k] = [...o[k]];
  o.frame = made;
  map.set(id, o);
  now.copied++;
  return o;
}
const idOf = (process, number) => process + "/" + number;
const qp = (process, number) => own(now.qps, idOf(process, number), () => ({
  process, number, type: "", state: "RESET", states: [], requests: [], keys: [], window: [], why: "", hints: 0, gone: false, wrong: false,
  counts: {begun: 0, ended: 0, received: 0, bytes: 0, failed: 0, flushed: 0, resent: 0, stalls: 0},
}));
const key = (process, number) => own(now.keys, idOf(process, number >>> 8), () => ({process, number, configured: 0, fields: {}, bad: [], gone: false, qp: 0}));
function limit(list, most) { while (list.length > most) list.shift(); }

function note(line, text, again = 0) {
  const last = now.log[now.log.length - 1];
  if (again && last && last.again && last.number === line.number && last.process === line.process) { // one entry for a burst
    again += last.again;
    now.log = now.log.slice(0, -1);
    text = `${again} packets were sent again, the last of them ${line.fields.psn.last}`;
  }
  now.log = [...now.log.slice(1 - LOG), {again, at: micros(line.time), process: line.process, object: line.object, number: line.number, text, bad: Boolean(line.reason)}];
}
function fail(q, text) { q.why = text; q.wrong = true; }

/** apply changes the state by a line of the trace. */
function apply(line) {
  const f = line.fields || {}, p = line.process, n = line.number;
  switch (line.kind) {
  case "counts":
    for (const row of line.rows || []) {
      if (!now.qps.has(idOf(row.process, row.number))) continue;
      const q = qp(row.process, row.number);
      q.counts = row;
      q.window.push([line.time ? micros(line.time) : 0, row.ended + row.received, row.bytes]);
      limit(q.window, 6);
    }
    if (line.left) now.left += line.left;
    return;
  case "over":
    now.over = line.reason;
    return;
  case "object":
    if (line.object === "qp") {
      if (line.action === "create") now.qps.delete(idOf(p, n)); // another one had the number
      const q = qp(p, n);
      if (line.action === "create") Object.assign(q, {type: f.type, created: micros(line.time)});
      q.gone = line.action === "destroy";
    } else if (line.object === "mkey") {
      if (line.action === "create") now.keys.delete(idOf(p, n >>> 8));
      key(p, n).gone = line.action === "destroy";
    } else if (line.object === "mr" && line.action !== "destroy") now.regions.set(n, f);
    else if (line.object === "mr") now.regions.delete(n);
    else if (line.object === "cm_id") note(line, line.action + (f.remote ? " " + f.remote : ""));
    return;
  case "state": {
    const q = qp(p, n);
    q.state = line.action;
    q.states.push({at: micros(line.time), to: line.action, from: f.from, by: f.by, fields: f});
    limit(q.states, REMEMBERED);
    if (f.remote) Object.assign(q, {remote: f.remote, local: f.local});
    if (f.dest_qp !== undefined) q.peer = f.dest_qp;
    if (line.action === "ERR" || line.action === "SQE") {
      q.wrong ||= f.by === "device"; // programs flush their queues so before they end
      note(line, `${f.by === "device" ? "the device" : "the program"} moved the queue pair from ${f.from} to ${line.action}`);
    } else if (line.action === "RESET") q.requests = q.requests.filter(r => r.end);
    return;
  }
  case "request": {
    const q = qp(p, n), bytes = f.inline || (f.sges || []).reduce((sum, e) => sum + e.length, 0);
    q.requests.push({request: f.request, op: line.action, begin: micros(line.time), bytes, fields: f, again: ""});
    limit(q.requests, REMEMBERED);
    if (line.action === "UMR" && f.mkey) {
      const k = key(p, f.mkey);
      k.number = f.mkey; k.qp = n; k.configured++;
      k.fields = {...k.fields, ...f};
      if (f.list) delete k.fields.interleaved;
      if (f.interleaved) delete k.fields.list;
      q.keys = [f.mkey >>> 8, ...q.keys.filter(x => x !== f.mkey >>> 8)];
      q.keys.length = Math.min(q.keys.length, REMEMBERED);
    }
    return;
  }
  case "completion": case "end": {
    const q = qp(p, n), receive = f.opcode.startsWith("RECV");
    let r = receive ? null : q.requests.findLast(r => r.request === f.request && !r.end && !r.receive);
    if (r) q.requests[q.requests.indexOf(r)] = r = {...r};
    else { r = {request: f.request, op: f.opcode, receive, bytes: f.bytes || 0, fields: {}}; q.requests.push(r); limit(q.requests, REMEMBERED); }
    Object.assign(r, {end: micros(line.time), status: line.action, reason: line.reason || "", result: f, signalled: line.kind === "completion"});
    if (f.bytes) r.bytes = f.bytes;
    if (!["success", "dropped"].includes(line.action) && !/flush/i.test(line.action)) {
      fail(q, `request ${f.request}, ${f.opcode}: ${line.action}${line.reason ? ": " + line.reason : ""}`);
      note(line, q.why);
    }
    return;
  }
  case "signature": {
    const k = key(p, n);
    if (line.action !== "rest") k.bad.push({at: micros(line.time), action: line.action, reason: line.reason, fields: f});
    limit(k.bad, REMEMBERED);
    const q = now.qps.has(idOf(p, f.qp)) ? qp(p, f.qp) : null;
    if (q) { fail(q, `key ${hex(n)}: ${line.reason}`); if (!q.keys.includes(n >>> 8)) q.keys.unshift(n >>> 8); }
    note(line, line.reason);
    return;
  }
  case "transport":
    if (line.action === "retransmit") {
      const n = ((f.psn.last - f.psn.first) & 0xffffff) + 1;
      return note({...line, reason: ""}, n > 1 ? `packets ${f.psn.first} to ${f.psn.last} were sent again` : `packet ${f.psn.first} was sent again`, n);
    }
    if (line.action === "waiting") return note({...line, reason: ""}, `request ${f.request}, ${f.opcode}, waits in the queue that was stopped`);
    break;
  case "refused":
    if (line.object === "qp" && now.qps.has(idOf(p, n))) fail(qp(p, n), `${line.action} was refused: ${line.reason}`);
    return note(line, `${line.action} was refused: ${line.reason}`);
  }
  if (line.reason || line.kind === "event" && line.object !== "cq") note(line, line.action + (line.reason ? ": " + line.reason : ""));
}

/** finish ends a frame. */
function finish(at) {
  now.at = at;
  for (const q of now.qps.values()) {
    if (q.window.length > 1 && q.window[q.window.length - 1][0] < at * 1000 - 1.5e6) own(now.qps, idOf(q.process, q.number)).window = [];
  }
  made++;
  frames.push({...now, qps: new Map(now.qps), keys: new Map(now.keys)});
  copies += now.copied;
  now.copied = 0;
  while (frames.length > 2 && frames[0].at < at - MINUTE) copies -= frames.shift().copied;
  if (copies > COPIES) {
    const half = frames.length >> 1;
    frames = frames.filter((f, i) => i > half || i % 2 === 0 || f === shown);
    copies = frames.reduce((sum, f) => sum + f.copied, 0);
  }
  if (live) shown = frames[frames.length - 1];
  schedule();
}

let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; render(); });
}

const troubled = (q, f) => q.wrong || q.counts.failed > 0 || q.keys.some(k => f.keys.get(idOf(q.process, k))?.bad.length);

/** hint says in words what a queue pair waits for, once that has lasted a second. */
function hint(q, f) {
  const last = q.states.length ? q.states[q.states.length - 1].at : q.created || 0;
  if (q.gone && !q.states.some(s => s.to === "RTS")) return q.states.some(s => s.to === "RTR") ? "It only received: it never was in RTS." : "It was destroyed before it reached RTR: it neither received nor sent.";
  if (f.at * 1000 - last < 1e6 && !f.over) return "";
  switch (q.state) {
  case "RESET": return q.gone ? "" : "It waits for INIT: ibv_modify_qp with a port and the rights of the peer.";
  case "INIT": return "It waits for RTR: ibv_modify_qp with the peer's address, QP number and first PSN. Until then it drops every packet.";
  case "RTR": return q.gone ? "" : "It can receive. It sends nothing before RTS: ibv_modify_qp with timeout, retries and its first PSN.";
  case "SQE": return "Sending has stopped after the failed request; RTS lets it go on.";
  case "ERR": return "Everything that is posted is flushed. Only RESET makes it usable again.";
  }
  const waits = q.requests.find(r => !r.end && f.at * 1000 - r.begin > 1e6);
  return waits ? `Request ${waits.request}, ${waits.op}, has waited for ${span(f.at * 1000 - waits.begin)}.` : "";
}

function rate(q) {
  const w = q.window;
  if (w.length < 2) return [0, 0];
  const s = (w[w.length - 1][0] - w[0][0]) / 1e6;
  return w[0][0] && s > 0 ? [(w[w.length - 1][1] - w[0][1]) / s, (w[w.length - 1][2] - w[0][2]) / s] : [0, 0];
}

const sig = d => !d ? "" : d.type === "none" ? "none" : `${d.type} ${d.block_size}+${d.field_size}`;
function keyText(k) {
  const f = k.fields, parts = [];
  if (f.list) parts.push(`${f.list.length} × list, ${size(f.list.reduce((s, e) => s + e.length, 0))}`);
  if (f.interleaved) parts.push(`${f.interleaved.entries.length} × interleaved, ${f.interleaved.repeat} times`);
  if (f.wire_signature) parts.push(`memory ${sig(f.memory_signature)}, wire ${sig(f.wire_signature)}`);
  if (f.crypto) parts.push(`AES-XTS ${f.crypto.data_unit_size}`);
  return parts.join("; ") || "not configured";
}
function outcome(r) {
  if (!r.end) return "outstanding";
  return r.status === "success" ? (r.begin ? span(r.end - r.begin) : "received") : r.status;
}

/** card makes the column of a queue pair; its parts are changed in place, so that clicks and the focus stay. */
function card(id) {
  const c = {root: el("article"), title: el("button"), what: el("p", {className: "what"}), peer: el("button"), rate: el("p", {className: "rate"}),
    states: STATES.map(s => el("li", {textContent: s})), numbers: [], why: el("p", {className: "why"}), hint: el("p", {className: "hint"}),
    keys: [], requests: [], keyList: el("ul", {className: "list"}), requestList: el("ul", {className: "list"})};
  const body = el("tbody");
  for (const name of ["posted, completed", "received", "bytes", "failed, flushed", "packets sent again", "sending stopped"]) {
    const td = el("td");
    c.numbers.push(td);
    body.append(el("tr", {}, el("td", {textContent: name}), td));
  }
  for (const [list, all, most, kind] of [[c.keyList, c.keys, KEYS, "key"], [c.requestList, c.requests, REQUESTS, "request"]]) {
    for (let i = 0; i < most; i++) {
      const b = el("button", {hidden: true});
      b.addEventListener("click", () => choose({kind, qp: id, ...b.subject}));
      all.push(b);
      list.append(el("li", {}, b));
    }
  }
  c.title.addEventListener("click", () => choose({kind: "qp", qp: id}));
  c.peer.addEventListener("click", () => { const p = shown.qps.get(id); if (p) choose({kind: "qp", qp: peerOf(p, shown)?.[0] || id}); });
  c.root.append(el("h2", {}, c.title), c.what, c.peer, el("ol", {className: "states"}, ...c.states), c.rate, el("table", {}, body), c.keyList, c.requestList, c.why, c.hint);
  return c;
}
function peerOf(q, f) {
  for (const [id, o] of f.qps) if (o.number === q.peer && o.local === q.remote && o !== q) return [id, o];
  return f.qps.has(idOf(q.process, q.peer)) && q.local === q.remote ? [idOf(q.process, q.peer), f.qps.get(idOf(q.process, q.peer))] : null;
}

function draw(c, id, q, f) {
  const bad = troubled(q, f);
  c.root.className = [bad && "troubled", q.gone && "gone", chosen && chosen.qp === id && "chosen"].filter(Boolean).join(" ");
  put(c.title, "QP " + hex(q.number));
  put(c.what, `${q.type || "queue pair"} of process ${q.process}${q.gone ? ", destroyed" : ""}`);
  const peer = q.peer === undefined ? null : peerOf(q, f);
  c.peer.hidden = q.peer === undefined;
  c.peer.disabled = !peer;
  put(c.peer, q.peer === undefined ? "" : `peer: QP ${hex(q.peer)} at ${q.remote || "?"}${peer ? ", " + (peer[1].gone ? "destroyed" : peer[1].state) : ""}`);
  const current = q.gone ? (q.states.findLast(s => s.to !== "RESET") || {to: "RESET"}).to : q.state;
  STATES.forEach((s, i) => {
    const been = q.states.some(x => x.to === s);
    c.states[i].className = current === s && !q.gone ? "now" + (s === "ERR" || s === "SQE" ? " wrong" : "") : been ? "been" : "";
  });
  const n = q.counts, [messages, bytes] = q.gone ? [0, 0] : rate(q);
  put(c.rate, messages ? `${many(messages)} requests/s, ${size(bytes)}/s` : "no requests now");
  const text = [`${many(n.begun)}, ${many(n.ended)}`, many(n.received), size(n.bytes), `${many(n.failed)}, ${many(n.flushed)}`, many(n.resent), many(n.stalls)];
  c.numbers.forEach((td, i) => { put(td, text[i]); td.className = i === 3 && n.failed ? "red" : ""; });
  c.keys.forEach((b, i) => {
    const k = f.keys.get(idOf(q.process, q.keys[i]));
    b.hidden = !k;
    if (!k) return;
    b.subject = {key: idOf(k.process, k.number >>> 8)};
    b.className = k.bad.length ? "bad" : "";
    put(b, `key ${hex(k.number)} ${keyText(k)}${k.bad.length ? ": " + k.bad[k.bad.length - 1].action : ""}`);
  });
  const last = q.requests.filter(r => r.op !== "SET_PSV").slice(-REQUESTS);
  c.requests.forEach((b, i) => {
    const r = last[i];
    b.hidden = !r;
    if (!r) return;
    b.subject = {request: r.request, receive: Boolean(r.receive), begin: r.begin};
    b.className = !r.end ? "open" : r.status === "success" ? "" : "bad";
    put(b, `${r.request} ${r.op}${r.bytes ? " " + size(r.bytes) : ""}: ${outcome(r)}`);
  });
  put(c.why, q.why);
  put(c.hint, hint(q, f));
}

const cards = new Map();
function wanted(q, f) {
  if ($("troubled").checked && !troubled(q, f)) return false;
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `qp ${hex(q.number)} ${q.number} ${q.type} ${q.state} process ${q.process} ${q.remote || ""} ${q.local || ""} ${q.gone ? "destroyed" : ""} ${q.keys.map(k => hex(k << 8)).join(" ")}`.toLowerCase();
  return words.every(w => text.includes(w));
}

function render() {
  const f = shown;
  if (!f || document.hidden) return;
  let all = [...f.qps].filter(([, q]) => wanted(q, f));
  if (all.length > 12) { // those with trouble first, then those that live
    const order = ([, q]) => (troubled(q, f) ? 0 : 2) + (q.gone ? 1 : 0);
    all.sort((a, b) => order(a) - order(b));
  }
  const rest = all.length - CARDS;
  all = all.slice(0, CARDS);
  const ids = new Set(all.map(([id]) => id));
  for (const [id, c] of cards) if (!ids.has(id)) { c.root.remove(); cards.delete(id); }
  let before = null;
  for (const [id, q] of all) {
    let c = cards.get(id);
    if (!c) cards.set(id, c = card(id));
    const next = before ? before.nextSibling : $("columns").firstChild;
    if (next !== c.root) $("columns").insertBefore(c.root, next);
    before = c.root;
    if (c.of !== q || c.frame !== f.at || c.choice !== chosen) draw(c, id, q, f);
    Object.assign(c, {of: q, frame: f.at, choice: chosen});
  }
  put($("more"), rest > 0 ? `${rest} more queue pairs: the filter finds them.` : all.length ? "A click on a queue pair, a key or a request shows its picture." : f.qps.size ? "No queue pair fits the filter." : "The program has made no queue pair yet.");
  renderLog(f);
  renderTime(f);
  renderDetail(f);
}

let logged = null;
function renderLog(f) {
  if (logged === f.log) return;
  logged = f.log;
  $("log").lastElementChild.replaceChildren(...f.log.slice(-60).reverse().map(e => {
    const id = idOf(e.process, e.number);
    const subject = e.object === "qp" ? {kind: "qp", qp: id} : e.object === "mkey" ? {kind: "key", key: idOf(e.process, e.number >>> 8)} : null;
    const b = subject && el("button", {textContent: (e.object === "qp" ? "QP " : "key ") + hex(e.number)});
    if (b) b.addEventListener("click", () => choose(subject));
    return el("li", {className: e.bad ? "red" : ""}, el("time", {textContent: clock(e.at)}), b || "", e.text);
  }));
}

function renderTime(f) {
  const i = frames.indexOf(f);
  $("slider").max = frames.length - 1;
  $("slider").value = i < 0 ? 0 : i;
  $("slider").disabled = frames.length < 2;
  $("back").disabled = i <= 0;
  $("forth").disabled = i < 0 || i >= frames.length - 1;
  put($("stop"), live && !now.over ? "stop" : "latest");
  $("stop").disabled = live && now.over !== "";
  const last = frames[frames.length - 1];
  put($("moment"), live ? "" : `${((last.at - f.at) / 1000).toFixed(1)} s before the latest`);
}

function choose(what) {
  chosen = what;
  described = "";
  document.body.classList.toggle("open", Boolean(what));
  $("detail").hidden = !what;
  schedule();
}

const words = {path_mtu: "path MTU", dest_qp: "peer's QP", rq_psn: "first PSN that it expects", sq_psn: "first PSN that it sends", remote: "peer's address", local: "own address",
  timeout: "timeout", retry_cnt: "retries without an answer", rnr_retry: "retries when the peer is not ready", max_rd_atomic: "own READs and atomics outstanding",
  max_dest_rd_atomic: "peer's READs and atomics outstanding", min_rnr_timer: "RNR timer", access: "the peer may"};
function value(name, v) {
  if (name === "dest_qp") return hex(v);
  if (name === "timeout") return v ? `${v} (${span(4.096 * 2 ** v)})` : "0 (without end)";
  if (name === "rnr_retry" && v === 7) return "7 (without end)";
  return Array.isArray(v) ? v.join(", ") || "nothing" : String(v);
}
function pairs(list) { return el("dl", {}, ...list.filter(([, v]) => v !== undefined && v !== "").flatMap(([k, v]) => [el("dt", {textContent: k}), el("dd", {textContent: v})])); }
function picture(query, title) {
  const i = el("img", {alt: title, src: "picture?" + new URLSearchParams(query)});
  i.addEventListener("error", () => i.parentNode.remove());
  return el("div", {className: "picture"}, i);
}

const describe = {
  qp(c, f) {
    const q = f.qps.get(c.qp);
    if (!q) return ["The queue pair is not there at this moment."];
    return [`QP ${hex(q.number)}, ${q.type}, process ${q.process}`,
      q.why && el("p", {className: "why", textContent: q.why}), el("p", {className: "hint", textContent: hint(q, f)}),
      picture({process: q.process, qp: q.number, n: q.states.length}, "the states of the queue pair"),
      ...q.states.map(s => el("div", {}, el("h3", {textContent: `${clock(s.at)}: ${s.from} to ${s.to}, by the ${s.by}`}),
        pairs(Object.keys(words).filter(k => s.fields[k] !== undefined).map(k => [words[k], value(k, s.fields[k])]))))];
  },
  key(c, f) {
    const k = f.keys.get(c.key);
    if (!k) return ["The key is not there at this moment."];
    return [`memory key ${hex(k.number)}${k.gone ? ", destroyed" : ""}`, el("p", {textContent: keyText(k)}),
      k.bad.length ? el("p", {className: "why", textContent: k.bad[k.bad.length - 1].reason}) : null,
      picture({process: k.process, key: k.number, n: k.configured + "-" + k.bad.length}, "the memory key"),
      pairs([["configured", k.configured ? `${k.configured} times in this page, by QP ${hex(k.qp)}` : ""], ["rights", (k.fields.access || []).join(", ")], ["bad blocks", k.bad.length ? String(k.bad.length) : "none"]]),
      ...k.bad.slice().reverse().map(b => el("p", {textContent: `${clock(b.at)} ${b.reason}`}))];
  },
  request(c, f) {
    const q = f.qps.get(c.qp), r = q && q.requests.findLast(r => r.request === c.request && Boolean(r.receive) === c.receive && (!c.begin || r.begin === c.begin));
    if (!r) return ["The request is not there at this moment."];
    const named = n => { const k = f.keys.get(idOf(q.process, n >>> 8)), m = f.regions.get(n); return k ? `memory key ${hex(n)}` : m ? `region ${hex(n)} of ${m.length} bytes` : `key ${hex(n)}`; };
    const g = r.result || {}, steps = [];
    if (r.begin) steps.push(`${clock(r.begin)} the device takes the request from the queue`);
    for (const e of r.fields.sges || []) steps.push(`${e.length} bytes at ${e.addr} of ${named(e.lkey)}`);
    if (r.fields.rkey !== undefined) steps.push(`the peer's memory: ${r.fields.remote_addr} of ${named(r.fields.rkey)}`);
    if (g.psn) steps.push(`packets ${g.psn.first} to ${g.psn.last}${g.retransmitted ? `, ${g.retransmitted} of them again` : ""}`);
    if (r.end) steps.push(`${clock(r.end)} ${r.signalled ? "its completion is written" : "it ends without a completion"}: ${r.status}`);
    return [`request ${r.request} of QP ${hex(q.number)}: ${r.op}`, r.reason && el("p", {className: "why", textContent: r.reason}),
      pairs([["bytes", String(r.bytes)], ["took", r.begin && r.end ? span(r.end - r.begin) : ""], ["status", r.end ? r.status : "outstanding"], ["flags", (r.fields.flags || []).join(", ")]]),
      el("h3", {textContent: "Its way"}), ...steps.map(s => el("p", {textContent: s})),
      r.fields.rkey === undefined ? null : picture({process: q.process, qp: q.number, request: r.request, n: r.status || ""}, "the way of the request")];
  },
};
let described = "";
function renderDetail(f) {
  if (!chosen) return;
  const c = chosen, q = f.qps.get(c.qp), k = f.keys.get(c.key);
  const mark = JSON.stringify([c, q && [q.states.length, q.why, hint(q, f), c.kind === "request" && q.requests.map(r => r.status)], k && [k.configured, k.bad.length, k.gone]]);
  if (mark === described) return;
  described = mark;
  const [title, ...parts] = describe[c.kind](c, f);
  put($("detail").children[1], title);
  $("detail").lastElementChild.replaceChildren(...parts.filter(Boolean));
}

function show(i) {
  live = false;
  shown = frames[Math.max(0, Math.min(frames.length - 1, i))];
  schedule();
}
$("stop").addEventListener("click", () => { live = !live; shown = frames[frames.length - 1] || null; schedule(); });
$("back").addEventListener("click", () => show(frames.indexOf(shown) - 1));
$("forth").addEventListener("click", () => show(frames.indexOf(shown) + 1));
$("slider").addEventListener("input", e => show(Number(e.target.value)));
$("filter").addEventListener("input", schedule);
$("troubled").addEventListener("change", schedule);
$("close").addEventListener("click", () => choose(null));
document.addEventListener("visibilitychange", schedule);
document.addEventListener("keydown", e => {
  if (e.target.tagName === "INPUT") return;
  if (e.key === "Escape") choose(null);
  if (e.key === "ArrowLeft") show(frames.indexOf(shown) - 1);
  if (e.key === "ArrowRight") show(frames.indexOf(shown) + 1);
});

function status(kind, text) { $("status").className = kind; put($("status"), text); }
let again = "";
function describeStatus() {
  if (now.over) return status("over", now.over);
  status("live", "the program runs" + (again && "; " + again) + (now.left ? `; ${now.left} records had no room` : ""));
}
reset();
const events = new EventSource("events");
events.addEventListener("base", e => {
  const base = JSON.parse(e.data);
  reset();
  again = base.overtaken ? "this page was slower than the run, and began again" : "";
  put($("title"), base.title);
  document.title = base.title + " – softmkey";
  for (const line of base.lines) apply(line);
});
events.addEventListener("tick", e => {
  const tick = JSON.parse(e.data);
  const each = tick.lines.length * (1 + now.qps.size + now.keys.size) <= EACH;
  for (const line of tick.lines) {
    apply(line);
    if (each && line.time) finish(micros(line.time) / 1000);
  }
  finish(tick.at);
  describeStatus();
});
events.addEventListener("pulse", e => {
  if (!frames.length || now.over) return;
  frames[frames.length - 1].at = Number(e.data);
  schedule();
});
events.addEventListener("open", () => status("live", "connected"));
events.addEventListener("error", () => {
  if (now.over) return status("over", now.over + "; softmkey has gone: this is what the page has seen");
  status("lost", "no connection to softmkey: this is what the page has seen; it tries again");
});
