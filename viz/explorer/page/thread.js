// The network in a thread of its own: what is asked of it, and what has to wait.

import { $ } from "./tools.js";
import { stored } from "./trace.js";
import { words } from "./words.js";

let underway = 0; // questions without an answer

// Ask a thread with the network: ask(kind, question) is a promise of its answer.
export function thread() {
  const url = URL.createObjectURL(new Blob([$("#worker").textContent], { type: "text/javascript" })),
    worker = new Worker(url),
    waiting = new Map();
  let count = 0;
  let broken = null;
  worker.onmessage = ({ data: { id, ...answer } }) => {
    waiting.get(id)?.(answer);
    waiting.delete(id);
  };
  worker.onerror = ({ message }) => {
    broken = message || words.threadStopped;
    waiting.forEach((done) => done({ error: broken }));
    waiting.clear();
  };
  const ask = (kind, question) =>
    new Promise((done) => {
      if (broken) return done({ error: broken });
      waiting.set(++count, done);
      worker.postMessage({ id: count, kind, ...question });
    });
  ask("load", { network: stored.network }).then(({ error }) => error && trouble(error));
  return ask;
}

function trouble(error) {
  $("#trouble").hidden = !error;
  if (error) $("#trouble").textContent = words.cantAnswer(error);
}

// A function that asks one question at a time. While one is answered, only the newest other one waits.
export function newest(ask, kind, arrived) {
  let waiting = null,
    running = false;
  return async (question, about) => {
    waiting = { question, about };
    if (running) return;
    running = true;
    expectAnswers(1);
    try {
      while (waiting) {
        const asked = waiting;
        waiting = null;
        const { error, ...answer } = await ask(kind, asked.question);
        if (error || kind === "explain") trouble(error);
        if (!error) arrived(answer, asked.about);
      }
    } finally {
      running = false;
      expectAnswers(-1);
    }
  };
}

function expectAnswers(more) {
  underway += more;
  $("main").setAttribute("aria-busy", underway > 0);
}

export const ask = thread();
