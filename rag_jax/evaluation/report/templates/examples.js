"use strict";
// Shows the examples that lie in the element "data" (rag_jax/evaluation/report/examples.py says how). All their texts
// become text nodes: nothing in them is read as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const retrieval = data.kind === "retrieval";
  const at = (id) => document.getElementById(id);
  const PAGE = 40;
  const HOLDS_ANSWER = 1, GOLD = 2;
  let run = 0, limit = PAGE;

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  const cell = (text, className = "") => element("td", className ? { class: className } : {}, text);
  const head = (text, scope) => element("th", { scope }, text);
  const thousandths = (value) => (value / 1000).toFixed(3);

  function table(className, caption, heads, rows) {
    const shown = element("table", { class: className }, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...heads.map((text) => head(text, "col")))),
      element("tbody", {}, ...rows));
    return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, shown);
  }

  // A text with the first place of each accepted answer marked.
  function marked(text, answers) {
    const lower = text.toLowerCase();
    const places = answers.filter((answer) => answer.trim())
      .map((answer) => [lower.indexOf(answer.toLowerCase()), answer.length])
      .filter(([place]) => place >= 0).sort((a, b) => a[0] - b[0]);
    const made = document.createDocumentFragment();
    let end = 0;
    for (const [place, length] of places) {
      if (place < end) continue;
      made.append(text.slice(end, place), element("mark", {}, text.slice(place, place + length)));
      end = place + length;
    }
    made.append(text.slice(end));
    return made;
  }

  function passageTable(listed, hidden, answers) {
    const shares = (prior, posterior) => retrieval ? [cell(prior.toFixed(2))]
      : [cell(thousandths(prior)), cell(posterior === null ? "–" : thousandths(posterior), posterior > prior ? "bigger" : "")];
    const rows = listed.map(([number, prior, posterior, flags], place) => {
      const [title, text] = data.passages[number];
      const words = element("td", {}, title ? element("strong", {}, title) : "");
      if (flags & GOLD) words.append(element("span", { class: "tag" }, "gold"));
      if (flags & HOLDS_ANSWER) words.append(element("span", { class: "tag" }, "holds an answer"));
      if (title || flags) words.append(element("br", {}));
      words.append(marked(text, answers));
      return element("tr", {}, head(String(place + 1), "row"), ...shares(prior, posterior), words);
    });
    if (hidden[0]) {
      const rest = `${hidden[0]} more, not shown`;
      const between = retrieval ? [cell("")] : shares(hidden[1], hidden[2]);
      rows.push(element("tr", {}, head("", "row"), ...between, element("td", {}, rest)));
    }
    const names = retrieval ? ["score"] : ["prior", "posterior"];
    return table("passages", "Passages", ["", ...names, "passage"], rows);
  }

  function heatMap(tokens, heat, count) {
    const heads = ["token", ...Array.from({ length: count }, (_, place) => String(place + 1))];
    if (heat[0].length > count) heads.push("others");
    const rows = tokens.map((token, number) => element("tr", {}, head(token, "row"), ...heat[number].map((share) => {
      const made = cell(String(share), share > 80 ? "strongest" : share > 65 ? "strong" : "");
      made.style.setProperty("--share", share);
      return made;
    })));
    return table("heat", "Each token over the passages, in hundredths", heads, rows);
  }

  function others(number) {
    const lines = data.runs.map((name, other) => [name, other === run ? null : data.answers[other][number]])
      .filter(([, given]) => given !== null);
    if (!lines.length) return null;
    const rows = lines.map(([name, [text, right]]) =>
      element("tr", {}, head(name, "row"), cell(text || "(nothing)"), cell(right ? "right" : "wrong")));
    return table("words", "The same question in other runs", ["run", "answer", ""], rows);
  }

  function body(number) {
    const [id, , answers] = data.questions[number];
    const [text, , probability, listed, hidden, tokens, heat] = data.answers[run][number];
    const made = element("div", { class: "body" });
    const facts = element("dl", {});
    const fact = (name, value) => facts.append(element("dt", {}, name), element("dd", {}, value));
    if (!retrieval) fact("answer", `${text || "(nothing)"}, p(y|x) = ${thousandths(probability)}`);
    fact("accepted", answers.join(" · ") || "none given");
    fact("id", element("a", { href: "#q=" + encodeURIComponent(id) }, id));
    made.append(facts);
    if (listed.length) made.append(passageTable(listed, hidden, answers));
    if (tokens.length) made.append(heatMap(tokens, heat, listed.length));
    const beside = others(number);
    if (beside) made.append(beside);
    return made;
  }

  function item(number) {
    const [, question] = data.questions[number];
    const [text, right] = data.answers[run][number];
    const verdict = retrieval ? (right ? `rank ${right}` : "missed") : (right ? "right" : "wrong");
    const details = element("details", {}, element("summary", {},
      element("span", { class: "mark " + (right ? "right" : "wrong") }, verdict),
      element("span", { class: "question" }, question),
      element("span", { class: "given" }, retrieval ? "" : text || "(nothing)")));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(body(number));
    });
    return element("li", {}, details);
  }

  function chosen() {
    const show = document.querySelector("input[name=show]:checked").value;
    const wanted = at("search").value.trim().toLowerCase();
    return data.questions.map((_, number) => number).filter((number) => {
      const given = data.answers[run][number];
      if (given === null || (show === "right" && !given[1]) || (show === "wrong" && given[1])) return false;
      const [, question, answers] = data.questions[number];
      return !wanted || [question, given[0], ...answers].some((text) => text.toLowerCase().includes(wanted));
    });
  }

  function draw() {
    const numbers = chosen();
    const shown = numbers.slice(0, limit);
    at("list").replaceChildren(...shown.map(item));
    at("count").textContent = numbers.length
      ? `${shown.length.toLocaleString("en")} of ${numbers.length.toLocaleString("en")} questions shown`
      : "No question fits.";
    at("more").hidden = shown.length === numbers.length;
    return numbers;
  }

  // An address that ends in #q=ID opens that question.
  function follow() {
    if (!location.hash.startsWith("#q=")) return;
    const id = decodeURIComponent(location.hash.slice(3));
    const number = data.questions.findIndex(([other]) => other === id);
    if (number < 0) return;
    document.querySelector("input[name=show]").checked = true;
    at("search").value = "";
    const place = chosen().indexOf(number);
    if (place < 0) return;
    limit = Math.max(limit, place + 1);
    draw();
    const details = at("list").children[place].firstElementChild;
    details.open = true;
    details.scrollIntoView();
  }

  at("run").append(...data.runs.map((name, number) => element("option", { value: String(number) }, name)));
  at("run-choice").hidden = data.runs.length < 2;
  at("run").addEventListener("change", (event) => { run = Number(event.target.value); limit = PAGE; draw(); });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("controls").addEventListener("input", (event) => {
    if (event.target !== at("run")) { limit = PAGE; draw(); }
  });
  at("more").addEventListener("click", () => { limit += PAGE; draw(); });
  window.addEventListener("hashchange", follow);
  at("controls").hidden = false;
  draw();
  follow();
})();
