// Draws a page of predictions from the data beside it. Every text is set as text, never as markup.
function showWays(name, style) {
  const data = JSON.parse(document.getElementById(name + "-data").textContent);
  const host = document.getElementById(name);
  host.replaceChildren();
  const root = host.shadowRoot || host.attachShadow({ mode: "open" });

  function make(tag, options, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(options || {})) {
      if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
      else node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null)); // a string becomes a text node
    return node;
  }

  const kinds = ["all", ...Object.keys(data.outcomes)];
  const systems = Object.keys(data.systems);
  const judging = systems.filter((one) => data.ways.some((way) => way.system === one && way.rounds[0].verdict));
  const state = { kind: "all", system: judging[judging.length - 1] || systems[0], set: "all", words: "", at: 0 };
  const fits = (way, kind) => kind === "all" || way.outcomes.includes(kind);
  const titleOf = (way) => data.questions[way.id].question || way.id;

  function ofSystem() {
    const words = state.words.toLowerCase();
    return data.ways.filter((way) => {
      const set = data.questions[way.id].dataset;
      const text = (titleOf(way) + " " + way.id).toLowerCase();
      return way.system === state.system && (state.set === "all" || set === state.set) && text.includes(words);
    });
  }

  function choice(label, values, key) {
    const options = Object.entries(values).map(([value, text]) => {
      return make("option", value === state[key] ? { value, selected: "" } : { value }, text);
    });
    const on = { change: (event) => change({ [key]: event.target.value }) };
    return make("select", { "aria-label": label, on }, ...options);
  }

  const pills = kinds.map((kind) => {
    const on = { click: () => change({ kind }) };
    return make("button", { class: "kind", title: data.outcomes[kind] || "every question", on });
  });
  const said = make("p", { class: "said", "aria-live": "polite" });
  const list = make("div", { class: "list", role: "listbox", "aria-label": "questions", on: { keydown: move } });
  const way = make("div", { class: "way", tabindex: "0" });
  const words = make("input", { type: "search", placeholder: "words of the question, or its id", "aria-label": "words",
    on: { input: (event) => change({ words: event.target.value }) } });

  function change(some) {
    Object.assign(state, { at: 0 }, some);
    const own = ofSystem();
    pills.forEach((pill, i) => {
      const count = own.filter((one) => fits(one, kinds[i])).length;
      pill.replaceChildren(kinds[i], make("b", {}, String(count)));
      pill.setAttribute("aria-pressed", String(kinds[i] === state.kind));
      pill.disabled = count === 0 && kinds[i] !== state.kind;
    });
    said.textContent = data.outcomes[state.kind] || "";
    const shown = own.filter((one) => fits(one, state.kind));
    list.replaceChildren(...shown.map((one, i) => entry(one, i)));
    list.scrollTop = 0;
    if (shown.length) open(shown[0], 0);
    else way.replaceChildren(make("p", { class: "empty" }, "No question is of this kind."));
  }

  function entry(one, i) {
    const last = one.rounds[one.rounds.length - 1];
    const about = [data.sets[data.questions[one.id].dataset], ...one.outcomes].join(" · ");
    const small = make("small", {}, about + " · ", make("span", { class: last.right || "" }, last.right || "not scored"));
    return make("button", { role: "option", on: { click: () => open(one, i) } }, titleOf(one), small);
  }

  function open(one, i) {
    for (const [j, node] of [...list.children].entries()) node.setAttribute("aria-current", String(j === i));
    state.at = i;
    const question = data.questions[one.id];
    const hidden = question.question ? "" : "its text is not part of the record";
    const about = [one.id, data.sets[question.dataset], question.kind, ...one.outcomes, hidden].filter(Boolean).join(" · ");
    way.replaceChildren(
      make("h3", {}, titleOf(one)),
      make("p", { class: "about" }, about),
      make("p", { class: "short" }, ...one.rounds.flatMap(shorten)),
      ...one.rounds.map((round, number) => drawRound(round, number, one, question)),
      make("p", { class: "gold" }, make("span", { class: "label" }, "gold"),
        question.answers.join(" | ") || "(not part of the record)"));
    way.scrollTop = 0;
  }

  function shorten(round, number) {
    const verdict = round.verdict;
    const made = [number ? " → " : "", make("span", { class: round.right || "" }, round.answer)];
    if (verdict) made.push(verdict.parsed ? ` → judged “${verdict.judgment}”` : " → a verdict that did not parse");
    if (verdict && verdict.revised_question) made.push(" → “", make("i", {}, verdict.revised_question), "”");
    return made;
  }

  function move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = list.children[state.at + step];
    if (!step || !next) return;
    event.preventDefault();
    next.click();
    next.focus();
  }

  function drawRound(round, number, one, question) {
    const seen = new Set(one.rounds.slice(0, number).flatMap((earlier) => earlier.passages));
    const cited = new Set([...round.answer.matchAll(/\[(\d+)\]/g)].map((mark) => Number(mark[1])));
    const itself = round.query === question.question && round.passages.length;
    const query = itself ? "the question itself" : round.query || "nothing";
    const passages = round.passages.map((id, i) => drawPassage(id, i, cited, question, round, number && !seen.has(id)));
    const right = make("span", { class: "tag " + (round.right || "") }, round.right || "");
    return make("section", { style: "border-left-color: " + data.systems[one.system] },
      make("div", {}, make("span", { class: "label" }, number ? "searched again for" : "searched for"), query),
      make("ol", {}, ...passages),
      make("p", { class: "answer" }, make("span", { class: "label" }, "answer"), round.answer, right),
      round.verdict ? drawVerdict(round.verdict) : null);
  }

  function drawPassage(id, i, cited, question, round, isNew) {
    const [title, text] = data.passages[id];
    const item = make("li", cited.has(i + 1) ? { class: "cited" } : {}, `[${i + 1}] `, make("b", {}, title || id), " ", text);
    if (question.gold_passages.includes(id)) item.append(make("span", { class: "note" }, "✓ gold"));
    else if (round.holds.includes(i)) item.append(make("span", { class: "note" }, "holds an answer"));
    if (isNew) item.append(make("span", { class: "note new" }, "new"));
    return item;
  }

  function drawVerdict(verdict) {
    if (!verdict.parsed) {
      return make("div", {}, make("span", { class: "label" }, "verdict did not parse"), make("code", {}, verdict.text));
    }
    const rows = data.scores.flatMap((score) => drawScore(score, verdict[score], (verdict.probabilities || {})[score] ?? null));
    const rest = verdict.revised_question || "(none: the answer stands)";
    return make("div", {}, make("div", { class: "scores" }, ...rows),
      make("div", {}, make("span", { class: "label" }, "judged"), verdict.judgment),
      make("div", {}, make("span", { class: "label" }, "revised question"), rest));
  }

  function drawScore(score, value, expected) {
    if (value === null) return [];
    const track = make("div", { class: "track" }, make("div", { class: "fill", style: `width: ${100 * value}%` }));
    const known = expected !== null;
    if (known) track.append(make("div", { class: "tick", style: `left: calc(${100 * expected}% - 1px)` }));
    const numbers = value.toFixed(2) + (known ? `, expected ${expected.toFixed(2)}` : "");
    return [make("span", {}, score.replaceAll("_", " ")), track, make("span", {}, numbers)];
  }

  root.replaceChildren(make("style", {}, style), make("div", { class: "page" },
    make("h2", {}, data.title + (data.texts ? "" : "; the texts of these data are not at hand, so there are ids")),
    make("div", { class: "bar" }, choice("system", Object.fromEntries(systems.map((one) => [one, one])), "system"),
      choice("set", { all: "all sets", ...data.sets }, "set"), words),
    make("div", { class: "bar" }, ...pills), said, make("div", { class: "split" }, list, way)));
  change({});
}
