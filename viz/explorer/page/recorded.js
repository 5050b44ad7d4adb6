// The page of a trace alone, without a network.

import "./softmax.js";
import "./view.js";
import { chooserInput, show, showImages, takeImage } from "./page.js";
import { wrongOf } from "./panels.js";
import { resume, share } from "./share.js";
import { now } from "./state.js";
import { $ } from "./tools.js";
import { stored } from "./trace.js";

const nameOf = ({ label }, n) => stored.parents[label]?.name ?? `${stored.words?.image ?? "image"} ${n}`;

$("#lead").insertAdjacentHTML("afterend", '<p id="without"></p>');
$("#without").textContent = stored.without;
show(stored);
showImages(
  stored.images.map((each, n) => ({ name: nameOf(each, n), pixels: each.pixels, wrong: wrongOf(stored, each) })),
  now.n,
  takeImage,
);

share({
  sealed: true,
  limits: { images: stored.images.length },
  read: () => ({ image: now.n === stored.start ? null : now.n }),
  restore({ image: n = stored.start }, moment) {
    if (chooserInput(n)) chooserInput(n).checked = true;
    takeImage(n);
    resume(moment);
  },
});
