#!/bin/sh
# pages.sh - ftxc page: what it refuses, and its pages in a browser (chromium, where there is one): all that is shown leads to
# something, the keyboard reaches it, and it fits 320 pixels.
set -eu
room=$FTX_BUILD/page
rm -rf "$room"
mkdir -p "$room"

fail() {
    echo "$*" >&2
    exit 1
}
says() { # says CODE WORDS ARGUMENT...: ftxc page ends with that code, and those words are in what it prints
    code=$1 words=$2 found=0
    shift 2
    "$FTXC" page "$@" >"$room/out" 2>&1 || found=$?
    if [ $found != "$code" ] || ! grep -q -e "$words" "$room/out"; then
        fail "ftxc page $*: exit code $found, wanted $code and \"$words\": $(cat "$room/out")"
    fi
}
says 2 'page: expected one spec' specs/fable.lua specs/verse.lua
says 1 'README.md' README.md
says 1 'none.ftx' none.ftx
says 2 'an artifact has the plans' "$room/fable.ftx" -t cpu
says 2 'limits.nothing' specs/fable.lua -D limits.nothing=1
says 2 'cpu sm_80' specs/fable.lua -t sm_10
says 1 'none.jsonl' specs/fable.lua -t cpu -m none.jsonl
says 1 'nowhere' specs/fable.lua -t cpu -o "$room/nowhere/page.html"
test ! -e page.html || fail "a page of a spec that was refused"

# Times of steps and of kernels, as `ftxc bench` writes them, are in the page of the spec and in that of the artifact.
"$FTXC" compile specs/fable.lua -t cpu -D limits.context=64 -o "$room/fable.ftx" -q
"$FTXC" bench "$room/fable.ftx" -d cpu --new 4 --repeat 1 --profile --json >"$room/fable.jsonl"
"$FTXC" bench "$room/fable.ftx" -d cpu --context 8 --repeat 1 --json >>"$room/fable.jsonl"
grep -q '^{"kernel":"linear__[^"]*","launches":[0-9]*,"time_us":[0-9.e+-]*,"model":"fable",' "$room/fable.jsonl"
says 0 'cpu.html: .* KB; open it in a browser' specs/fable.lua -t cpu -D limits.context=64 -m "$room/fable.jsonl" -o "$room/cpu.html"
says 0 'artifact.html' "$room/fable.ftx" -m "$room/fable.jsonl" -o "$room/artifact.html"
"$FTXC" run "$room/fable.ftx" 'Once upon' -n 5 --greedy -d cpu -q --trace "$room/trace.json" >"$room/out"
says 0 'traced.html' specs/fable.lua -t cpu -D limits.context=64 -m "$room/trace.json" -o "$room/traced.html"
says 0 'verse.html' specs/verse.lua -t sm_90a,cpu -o "$room/verse.html"
says 0 '8b.html' specs/llama-3.1-8b.lua -t sm_90a -o "$room/8b.html"
says 2 'nothing in it is about verse' specs/verse.lua -t cpu -m "$room/fable.jsonl" -o "$room/x.html"
(cd "$room" && "$FTXC" page fable.ftx) | grep -q '^page.html: ' && test -s "$room/page.html"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "skipped: no chromium on this machine"
    exit 0
fi

# What is asked of a page: a script that runs in it, behind its own.
cat >"$room/ask.js" <<'END'
let asked = 0;
const wrong = [];
const ask = (what, ok) => { asked++; if (!ok && wrong.push(what) > 20) throw new Error('too much is wrong'); };
const texts = () => document.querySelector('main').textContent;
const ids = { v: i => lastGraph && lastGraph.by.has(i), l: i => i < now.program.launches.length, k: i => i < now.plan.kernels.length,
  b: i => i < now.program.buffers.length, f: i => i < now.plan.fixed.length, w: i => i < weights.length };
const inPlan = id => document.querySelector('section#' + id) || (/^[vlkbfw]\d+$/.test(id) && ids[id[0]](+id.slice(1)));
const openAll = () => {
  for (const f of Object.values(reveal)) f();
  document.querySelectorAll('details').forEach(d => { d.open = true; d.dispatchEvent(new Event('toggle')); });
};
function askProgram() {
  openAll();
  const all = [...document.querySelectorAll('main [id]')].filter(e => /^[vlkbfw]\d+$/.test(e.id)).map(e => e.id);
  ask('ids are unique', new Set(all).size === all.length);
  for (const id of all) ask(id + ' is in the plan', inPlan(id));
  for (const a of document.querySelectorAll('a[href]'))
    ask(a.href + ' leads to something', a.getAttribute('href')[0] === '#' && (document.getElementById(a.hash.slice(1)) || inPlan(a.hash.slice(1)) || a.hash === '#main'));
  for (let i = 0; i < now.program.launches.length; i++) ask('launch ' + i, document.getElementById('l' + i));
  for (let i = 0; i < now.program.buffers.length; i++) ask('buffer ' + i, document.getElementById('b' + i));
  if (lastGraph) for (const v of lastGraph.values) ask('value ' + v.id, document.getElementById('v' + v.id));
  ask('nothing is undefined', !/undefined|NaN|\[object/.test(texts()));
}
function askKeys() {
  for (const box of document.querySelectorAll('[role=slider]')) {
    const press = key => { box.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })); return +box.getAttribute('aria-valuenow'); };
    const last = now.program.launches.length - 1;
    ask('a slider can be reached', box.tabIndex === 0);
    ask('Home', press('Home') === 0);
    ask('left of the first', press('ArrowLeft') === 0);
    ask('right', press('ArrowRight') === Math.min(1, last) && box.getAttribute('aria-valuetext').startsWith('launch ' + Math.min(1, last)));
    ask('End', press('End') === last && press('ArrowRight') === last);
  }
  document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }));
  ask('/ goes to the search', document.activeElement.id === 'search');
}
function askSearch() {
  const find = text => { $('#search').value = text; search(); return [...document.querySelectorAll('#found a')]; };
  const l = now.program.launches[now.program.launches.length - 1], last = '#l' + (now.program.launches.length - 1);
  ask('a launch is found by its label', find(l.label).some(a => a.hash === last));
  ask('nothing is found', find('no such thing at all').length === 0 && /nothing/.test($('#found').textContent));
  drawAll();
  const folded = Object.keys(reveal).filter(id => /^w\d/.test(id)).pop() || 'w0';
  location.hash = find(weights[folded.slice(1)].name).find(a => a.hash === '#' + folded).hash;
  follow();
  ask('a weight is found, unfolded and focused', document.activeElement.id === folded);
  find('');
  ask('an empty search shows nothing', $('#found').hidden);
}
function askFolds() {
  drawAll();
  const button = document.querySelector('#step tr.fold button'), rows = () => document.querySelectorAll('#step tbody tr').length;
  if (now.program.launches.length > 30) ask('layers are folded', button && rows() < now.program.launches.length);
  if (!button) return;
  const before = rows();
  button.click();
  ask('a fold opens', rows() === now.program.launches.length + document.querySelectorAll('#step tr.fold').length || rows() > before);
  ask('it says so', button.getAttribute('aria-expanded') === 'true');
  button.click();
  ask('and closes', rows() === before && button.getAttribute('aria-expanded') === 'false');
}
function askWidth() {
  document.documentElement.scrollLeft = 1000;
  ask(`${document.documentElement.scrollWidth} pixels in ${innerWidth}`, document.documentElement.scrollWidth <= innerWidth);
  for (const l of document.querySelectorAll('label:has(select)'))
    ask(`"${l.firstChild.data.trim()}" is on one line`, l.getBoundingClientRect().height < 40);
}
function askGraph() {
  if (!lastGraph) return ask('an artifact says what it lacks', /holds no graph/.test(texts()) && /holds no candidates/.test(texts()));
  for (const g of data.graphs) ask('every line of a graph is read', g.text.split('\n').filter(t => t[0] === '%').length === graphs[data.graphs.indexOf(g)].values.length);
  for (let i = 0; i < graphs.length; i++) {
    now.pair = i % graphs.length;
    if (graphs.length > 2 || i < graphs.length - 1) drawGraph();
  }
  now.pair = 0;
  drawGraph();
  const rows = compare(graphs[0], graphs[1]);
  ask('each value stands in a comparison once', rows.filter(r => r.a).length === graphs[0].values.length && rows.filter(r => r.b).length === graphs[1].values.length);
  ask('simplify changed something', rows.some(r => r.how === 'apart') && rows.some(r => r.how === 'same'));
  ask('a graph equals itself', compare(lastGraph, lastGraph).every(r => r.how === 'same'));
}
function askMeasured() {
  if (!data.measured) return;
  ask('measured launches', now.program.launches.every(l => measuredTime(l) > 0) && /Measured/.test(texts()));
  ask('measured steps', data.measured.steps.length ? /Steps as measured/.test(texts()) : traced.size > 0);
  if (traced.size) { // of two sizes, the times of the one that is shown
    const us = measuredTime(now.program.launches[1]);
    now.one = false;
    ask('a prompt takes longer', measuredTime(now.program.launches[1]) !== us);
    now.one = true;
  }
}
function askColours() {
  const dark = () => getComputedStyle(document.documentElement).getPropertyValue('--back').trim();
  const seen = new Set();
  for (let i = 0; i < 3; i++) { seen.add(dark()); $('#theme').click(); }
  ask('light and dark', seen.size === 2);
}
try {
  askMeasured();
  askGraph();
  askKeys();
  askSearch();
  askFolds();
  askColours();
  for (const p of plans)
    for (const g of p.programs.filter((_, i) => i < 2 || i > p.programs.length - 3)) {
      setPlan(p);
      now.program = g;
      drawAll();
      askProgram();
    }
  askWidth();
} catch (e) { wrong.push(String(e)); }
parent.postMessage(`asked ${asked}, wrong ${wrong.length}: ${wrong.concat(failed).join('; ')}, errors ${failed.length}.`, '*');
END

open_in_browser() { # open_in_browser PAGE: asks it in a frame of 320 pixels, and says what was wrong
    awk -v ask="$room/ask.js" '
        /^<head>/ { print; print "<script>const failed = []; addEventListener(\"error\", e => failed.push(e.message)); addEventListener(\"securitypolicyviolation\", e => failed.push(e.violatedDirective));</script>"; next }
        /^<\/body>/ { print "<script>"; while ((getline line < ask) > 0) print line; print "</script>" }
        { print }' "$room/$1.html" >"$room/asked.html"
    cat >"$room/frame.html" <<'END'
<!DOCTYPE html><body><iframe width=320 height=700 style="border:0" src="asked.html"></iframe><p id=said>nothing</p>
<script>addEventListener('message', e => { document.getElementById('said').textContent = e.data; });</script>
END
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$room/browser" --virtual-time-budget=60000 \
        --enable-logging=stderr --dump-dom "file://$(cd "$room" && pwd)/frame.html" >"$room/dom" 2>"$room/err" ||
        fail "$1: the browser failed: $(tail -5 "$room/err")"
    said=$(sed -n 's/.*<p id="said">\(.*\)<\/p>.*/\1/p' "$room/dom")
    case $said in
    "asked "*", wrong 0: , errors 0.") ;;
    *) fail "$1: $said" ;;
    esac
    ! grep CONSOLE "$room/err" >&2 || fail "$1: the console is not empty"
    echo "$1: $said"
}
for page in cpu traced artifact verse 8b; do
    open_in_browser $page
done
