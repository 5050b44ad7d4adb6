// The exercises below the article, each with a link that sets the page for it. Both are about images.

function drawExercises() {
  const { routing, iterations } = trace.network?.layers.at(-1) ?? {},
    other = routing === "uniform" ? "dynamic.3" : "uniform.1",
    fits = { turn: routing, equal: routing, epochs: !routing && trace.epochs.length > 1, matrix: !routing },
    names = Object.keys(words.exercises).filter((name) => name === "steps" || fits[name]),
    links = { steps: "iteration=1", turn: "turn=20", equal: `compare=${routing}.${iterations}.${other}`, matrix: "view=matrix" };
  $("#about").hidden = !photo;
  fill($("#about ol"), names.length, "li", (item) => {
    item.innerHTML = "<span></span> <a></a>";
    item.lastChild.addEventListener("click", () => bringIntoSight($("main")));
  });
  names.forEach((name, at) => {
    const [text, link] = $("#about ol").children[at].children;
    text.textContent = words.exercises[name];
    link.textContent = words.set;
    link.href = `#${links[name]}`;
    link.hidden = !(name in links);
  });
}

drawExercises();
renewals.push(drawExercises);
