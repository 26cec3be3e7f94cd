// Draws a page of predictions from the data next to it. Every text is set as text, never as markup.
function showPredictions(name, style) {
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

  const outcomes = ["all", ...Object.keys(data.outcomes)];
  const systems = Object.keys(data.systems);
  const hasVerdict = (item) => item.rounds[0].verdict;
  const verified = systems.filter((system) => data.predictions.some((item) => item.system === system && hasVerdict(item)));
  const state = { outcome: "all", system: verified[verified.length - 1] || systems[0], set: "all", words: "", at: 0 };
  const matches = (item, outcome) => outcome === "all" || item.outcomes.includes(outcome);
  const titleOf = (item) => data.questions[item.id].question || item.id;

  function selectPredictions() {
    const words = state.words.toLowerCase();
    return data.predictions.filter((item) => {
      const set = data.questions[item.id].dataset;
      const text = (titleOf(item) + " " + item.id).toLowerCase();
      return item.system === state.system && (state.set === "all" || set === state.set) && text.includes(words);
    });
  }

  function choice(label, values, key) {
    const options = Object.entries(values).map(([value, text]) => {
      return make("option", value === state[key] ? { value, selected: "" } : { value }, text);
    });
    const on = { change: (event) => update({ [key]: event.target.value }) };
    return make("select", { "aria-label": label, on }, ...options);
  }

  const buttons = outcomes.map((outcome) => {
    const on = { click: () => update({ outcome }) };
    return make("button", { class: "outcome", title: data.outcomes[outcome] || "every question", on });
  });
  const meaning = make("p", { class: "meaning", "aria-live": "polite" });
  const list = make("div", { class: "list", role: "listbox", "aria-label": "questions", on: { keydown: move } });
  const details = make("div", { class: "details", tabindex: "0" });
  const words = make("input", { type: "search", placeholder: "words of the question, or its id", "aria-label": "words",
    on: { input: (event) => update({ words: event.target.value }) } });

  function update(changes) {
    Object.assign(state, { at: 0 }, changes);
    const selected = selectPredictions();
    buttons.forEach((button, i) => {
      const count = selected.filter((item) => matches(item, outcomes[i])).length;
      button.replaceChildren(outcomes[i], make("b", {}, String(count)));
      button.setAttribute("aria-pressed", String(outcomes[i] === state.outcome));
      button.disabled = count === 0 && outcomes[i] !== state.outcome;
    });
    meaning.textContent = data.outcomes[state.outcome] || "";
    const shown = selected.filter((item) => matches(item, state.outcome));
    list.replaceChildren(...shown.map((item, i) => entry(item, i)));
    list.scrollTop = 0;
    if (shown.length) open(shown[0], 0);
    else details.replaceChildren(make("p", { class: "empty" }, "No question matches."));
  }

  function entry(item, i) {
    const last = item.rounds[item.rounds.length - 1];
    const about = [data.sets[data.questions[item.id].dataset], ...item.outcomes].join(" · ");
    const right = make("span", { class: last.right || "" }, last.right || "not scored");
    const small = make("small", {}, about + " · ", right);
    return make("button", { role: "option", on: { click: () => open(item, i) } }, titleOf(item), small);
  }

  function open(item, i) {
    for (const [j, node] of [...list.children].entries()) node.setAttribute("aria-current", String(j === i));
    state.at = i;
    const question = data.questions[item.id];
    const hidden = question.question ? "" : "the record does not contain its text";
    const facts = [item.id, data.sets[question.dataset], question.kind, ...item.outcomes, hidden];
    details.replaceChildren(
      make("h3", {}, titleOf(item)),
      make("p", { class: "about" }, facts.filter(Boolean).join(" · ")),
      make("p", { class: "short" }, ...item.rounds.flatMap(shorten)),
      ...item.rounds.map((round, number) => drawRound(round, number, item, question)),
      make("p", { class: "gold" }, make("span", { class: "label" }, "gold answer"),
        question.answers.join(" | ") || "(not in the record)"));
    details.scrollTop = 0;
  }

  function shorten(round, number) {
    const verdict = round.verdict;
    const parts = [number ? " → " : "", make("span", { class: round.right || "" }, round.answer)];
    if (verdict) parts.push(verdict.parsed ? ` → judged “${verdict.judgment}”` : " → verdict not parsed");
    if (verdict && verdict.revised_question) parts.push(" → “", make("i", {}, verdict.revised_question), "”");
    return parts;
  }

  function move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = list.children[state.at + step];
    if (!step || !next) return;
    event.preventDefault();
    next.click();
    next.focus();
  }

  function drawRound(round, number, item, question) {
    const seen = new Set(item.rounds.slice(0, number).flatMap((earlier) => earlier.passages));
    const cited = new Set([...round.answer.matchAll(/\[(\d+)\]/g)].map((mark) => Number(mark[1])));
    const isQuestion = round.query === question.question && round.passages.length;
    const query = isQuestion ? "the question itself" : round.query || "no search";
    const passages = round.passages.map((id, i) => drawPassage(id, i, cited, question, round, number && !seen.has(id)));
    const right = make("span", { class: "tag " + (round.right || "") }, round.right || "");
    return make("section", { style: "border-left-color: " + data.systems[item.system][1] },
      make("div", {}, make("span", { class: "label" }, number ? "second query" : "query"), query),
      make("ol", {}, ...passages),
      make("p", { class: "answer" }, make("span", { class: "label" }, "answer"), round.answer, right),
      round.verdict ? drawVerdict(round.verdict) : null);
  }

  function drawPassage(id, i, cited, question, round, isNew) {
    const [title, text] = data.passages[id];
    const options = cited.has(i + 1) ? { class: "cited" } : {};
    const item = make("li", options, `[${i + 1}] `, make("b", {}, title || id), " ", text);
    if (question.gold_passages.includes(id)) item.append(make("span", { class: "note" }, "✓ gold"));
    else if (round.holds.includes(i)) item.append(make("span", { class: "note" }, "contains an answer"));
    if (isNew) item.append(make("span", { class: "note new" }, "new"));
    return item;
  }

  function drawVerdict(verdict) {
    if (!verdict.parsed) {
      return make("div", {}, make("span", { class: "label" }, "verdict not parsed"), make("code", {}, verdict.text));
    }
    const rows = data.scores.flatMap((score) => drawScore(score, verdict[score], (verdict.probabilities || {})[score] ?? null));
    const revised = verdict.revised_question || "(none: the answer is kept)";
    return make("div", {}, make("div", { class: "scores" }, ...rows),
      make("div", {}, make("span", { class: "label" }, "judgment"), verdict.judgment),
      make("div", {}, make("span", { class: "label" }, "revised question"), revised));
  }

  function drawScore(score, value, expected) {
    if (value === null) return [];
    const track = make("div", { class: "track" }, make("div", { class: "fill", style: `width: ${100 * value}%` }));
    const hasExpected = expected !== null;
    if (hasExpected) track.append(make("div", { class: "tick", style: `left: calc(${100 * expected}% - 1px)` }));
    const numbers = value.toFixed(2) + (hasExpected ? `, expected ${expected.toFixed(2)}` : "");
    return [make("span", {}, score.replaceAll("_", " ")), track, make("span", {}, numbers)];
  }

  const labels = Object.fromEntries(systems.map((system) => [system, data.systems[system][0]]));
  const missing = data.texts ? "" : "; the texts of this data are not available, so ids are shown";
  root.replaceChildren(make("style", {}, style), make("div", { class: "page" },
    make("h2", {}, data.title + missing),
    make("div", { class: "bar" }, choice("system", labels, "system"),
      choice("set", { all: "all sets", ...data.sets }, "set"), words),
    make("div", { class: "bar" }, ...buttons), meaning, make("div", { class: "split" }, list, details)));
  update({});
}
