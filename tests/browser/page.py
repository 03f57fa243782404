"""A page that tries everything a page can to make its browser speak to the bus."""

from __future__ import annotations

import json

INTRUDER = "web:intruder"
LINES = "\n".join(
    json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    for number, (method, params) in enumerate(
        [
            ("initialize", {"clientId": INTRUDER}),
            ("subscribe", {"address": "web:*"}),
            ("sendMessage", {"to": "agent:witness", "payload": {"from": "a page"}}),
        ],
        1,
    )
)

# `target` is the host and port to attack; each attempt ends in an answer, an error or 2 seconds.
PAGE = """<!doctype html><meta charset="utf-8"><title>page</title><body><script>
const target = TARGET, lines = LINES, base = 'http://' + target;
const ending = (promise) => Promise.race([
  promise.then((x) => String(x), (e) => String(e)),
  new Promise((resolve) => setTimeout(() => resolve('no end'), 2000)),
]);
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND',
  'initialize', 'x', '{', '[', ' ', '\\n', '\\t{', '{"jsonrpc":"2.0"}'];
for (let code = 33; code < 127; code++) {
  if (!/[A-Za-z0-9]/.test(String.fromCharCode(code))) methods.push(String.fromCharCode(code) + 'X');
}
function xhr(method) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.onloadend = () => resolve(request.status);
    request.open(method, base + '/');
    request.setRequestHeader('Content-Type', 'text/plain');
    request.send(lines);
  });
}
function form(method) {
  const frame = document.createElement('iframe');
  frame.name = 'frame-' + method;
  const form = document.createElement('form');
  const field = document.createElement('textarea');
  form.action = base + '/'; form.method = method; form.enctype = 'text/plain';
  form.target = frame.name; field.name = lines + '\\n'; field.value = '\\n' + lines;
  form.append(field); document.body.append(frame, form);
  return new Promise((resolve) => { frame.onload = () => resolve('loaded'); form.submit(); });
}
function socket() {
  return new Promise((resolve) => {
    const web = new WebSocket('ws://' + target + '/');
    web.onopen = () => { for (const line of lines.split('\\n')) web.send(line); resolve('open'); };
    web.onerror = () => resolve('refused');
  });
}
async function all() {
  const said = {};
  for (const method of methods) {
    const body = ['GET', 'HEAD'].includes(method) ? undefined : lines;
    said['fetch ' + method] = await ending((async () =>
      (await fetch(base + '/', {method, body, headers: {'X-Line': 'x'}})).status)());
  }
  for (const method of ['GET', 'POST', 'HEAD']) {
    const body = method === 'POST' ? lines : undefined;
    said['no-cors ' + method] = await ending((async () =>
      (await fetch(base + '/', {method, body, mode: 'no-cors', keepalive: true})).type)());
  }
  said.path = await ending(fetch(base + '/%0a' + lines, {mode: 'no-cors'}).then((r) => r.type));
  said['xhr PROPFIND'] = await ending(xhr('PROPFIND'));
  said['xhr POST'] = await ending(xhr('POST'));
  said['form get'] = await ending(form('get'));
  said['form post'] = await ending(form('post'));
  said.beacon = String(navigator.sendBeacon(base + '/', lines));
  if (SOCKET) said.socket = await ending(socket());
  await fetch('/done', {method: 'POST', body: JSON.stringify(said)});
}
all();
</script>"""


def page_for(target: str, *, with_socket: bool) -> bytes:
    """Return the page that attacks a host and port."""
    text = PAGE
    for name, value in {"TARGET": target, "LINES": LINES, "SOCKET": with_socket}.items():
        text = text.replace(name, json.dumps(value))
    return text.encode()
