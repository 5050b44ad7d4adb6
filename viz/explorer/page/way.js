// The way from the pixels to the child that is spoken of: feeds.js finds it.

import { explanations } from "./formulas.js";
import { network } from "./live.js";
import { raster } from "./picture.js";
import { childName, redraw } from "./shell.js";
import { state } from "./state.js";
import { ask, newest } from "./thread.js";
import { $, fill } from "./tools.js";
import { words } from "./words.js";

let way = { child: null, of: null, found: null }, // what is shown: the child, of which answer, and what feeds it
  wanted = way; // what was asked for last

const findFeeds = newest(ask, "feeds", ({ feeds }, { child, of }) => {
  way = { child, of, found: feeds };
  redraw();
});

function drawWay({ child }) {
  $("#way").hidden = network.layers.length > 1;
  if (network.layers.length > 1) return;
  if (way.child !== child || way.of !== state.routed) {
    if (wanted.child === child && wanted.of === state.routed) return;
    wanted = { child, of: state.routed };
    return findFeeds({ pixels: state.image.pixels.data, child }, wanted);
  }
  const { field, window, size, count, maps } = way.found,
    [, , high, wide] = field,
    percent = (part) => `${Math.round(100 * part)} %`;
  $("#way h3").textContent = words.wayTo(childName(child));
  $("#way figcaption").textContent = words.wayNote(high, wide, maps.length, count);
  windowed($("#way > div > canvas"), state.photo, field);
  fill($("#way ol"), maps.length, "li", (item) => (item.innerHTML = '<canvas role="img"></canvas><span></span>'));
  maps.forEach((map, at) => {
    const [canvas, text] = $("#way ol").children[at].children,
      grey = raster(...size, (x) => [map.picture[x], map.picture[x], map.picture[x], 255]);
    windowed(canvas, grey, window);
    text.textContent = percent(map.share);
    canvas.setAttribute("aria-label", words.mapOf(map.channel, percent(map.share)));
  });
}

// A picture with a frame around a part of it, unless that is all.
function windowed(canvas, picture, [top, left, high, wide]) {
  const unit = 128 / picture.width;
  Object.assign(canvas, { width: 128, height: Math.round(unit * picture.height) });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  Object.assign(context, { strokeStyle: `rgb(${state.look.glow.join(" ")})`, lineWidth: 5 });
  if (high < picture.height || wide < picture.width) {
    context.strokeRect(left * unit + 2, top * unit + 2, wide * unit - 4, high * unit - 4);
  }
}

explanations.push(drawWay);
