"use strict";
for (const box of document.querySelectorAll(".landscape")) {
  const {x, y, loss} = JSON.parse(box.dataset.surface);
  const canvas = box.querySelector("canvas"), svg = box.querySelector("svg"), output = box.querySelector("output");
  const row = box.querySelector(".row"), column = box.querySelector(".column");
  const all = [...loss.train.flat(), ...loss.test.flat()];
  const lowest = all.reduce((a, b) => Math.min(a, b)), highest = all.reduce((a, b) => Math.max(a, b));
  const scale = lowest > 0 ? Math.log10 : value => value;
  const low = scale(lowest), span = scale(highest) - low || 1;
  const nearest = values => values.reduce((best, v, i) => Math.abs(v) < Math.abs(values[best]) ? i : best, 0);
  const number = value => value.toPrecision(4), place = value => value.toFixed(2).replace("-", "−");
  const part = () => box.querySelector("input[type=radio]:checked").value;
  // Matplotlib's viridis at nine places.
  const stops = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
                 [53, 183, 121], [144, 215, 67], [253, 231, 37]];
  const colour = share => {
    const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
    return stops[i].map((value, k) => value + (at - i) * (stops[i + 1][k] - value));
  };

  function drawMap() {
    const size = canvas.width = canvas.height = 384, values = loss[part()].map(line => line.map(scale));
    const context = canvas.getContext("2d"), image = context.createImageData(size, size);
    let above = new Array(size).fill(null);
    for (let j = 0; j < size; j++) {
      const v = (1 - j / (size - 1)) * (y.length - 1), r = Math.min(Math.floor(v), y.length - 2);
      let left = null;
      for (let i = 0; i < size; i++) {
        const u = i / (size - 1) * (x.length - 1), c = Math.min(Math.floor(u), x.length - 2);
        const mix = line => line[c] + (u - c) * (line[c + 1] - line[c]);
        const value = mix(values[r]) + (v - r) * (mix(values[r + 1]) - mix(values[r]));
        const level = Math.floor(scale === Math.log10 ? 4 * value : 24 * (value - low) / span);
        const edge = (left !== null && left !== level) || (above[i] !== null && above[i] !== level);
        const rgb = colour((value - low) / span), at = 4 * (j * size + i);
        for (let k = 0; k < 3; k++) image.data[at + k] = edge ? 0.55 * rgb[k] + 115 : rgb[k];
        image.data[at + 3] = 255;
        left = above[i] = level;
      }
    }
    context.putImageData(image, 0, 0);
    const across = value => (value - x[0]) / (x[x.length - 1] - x[0]) * (size - 1);
    const up = value => (1 - (value - y[0]) / (y[y.length - 1] - y[0])) * (size - 1);
    const cross = (a, b, arm, ink, width) => {
      context.strokeStyle = ink;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(a - arm, b); context.lineTo(a + arm, b);
      context.moveTo(a, b - arm); context.lineTo(a, b + arm);
      context.stroke();
    };
    for (const minimum of box.id.includes("between") ? [0, 1] : [0]) {
      cross(across(minimum), up(0), 9, "#000000", 5);
      cross(across(minimum), up(0), 8, "#ffffff", 2);
    }
    context.strokeStyle = "#ffffff";
    context.setLineDash([5, 5]);
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(0, up(y[+row.value])); context.lineTo(size, up(y[+row.value]));
    context.stroke();
    context.setLineDash([]);
    context.beginPath();
    context.arc(across(x[+column.value]), up(y[+row.value]), 5, 0, 7);
    context.stroke();
  }

  function drawCut() {
    const left = 62, right = 376, top = 12, bottom = 262, j = +row.value;
    const across = value => left + (value - x[0]) / (x[x.length - 1] - x[0]) * (right - left);
    const up = value => bottom - (scale(value) - low) / span * (bottom - top);
    const make = (name, attributes, text) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const key in attributes) element.setAttribute(key, attributes[key]);
      if (text !== undefined) element.textContent = text;
      svg.append(element);
    };
    svg.replaceChildren();
    const ends = scale === Math.log10 ? Math.pow(10, low + span / 2) : low + span / 2;
    for (const value of [lowest, ends, highest]) {
      make("line", {x1: left, x2: right, y1: up(value), y2: up(value), class: "grid"});
      make("text", {x: left - 6, y: up(value) + 5, "text-anchor": "end"}, value.toPrecision(2));
    }
    for (const value of [x[0], (x[0] + x[x.length - 1]) / 2, x[x.length - 1]])
      make("text", {x: across(value), y: bottom + 24, "text-anchor": "middle"}, place(value));
    make("line", {x1: across(x[+column.value]), x2: across(x[+column.value]), y1: top, y2: bottom, class: "here"});
    for (const name of ["train", "test"])
      make("polyline", {class: name, points: x.map((value, i) => `${across(value)},${up(loss[name][j][i])}`).join(" ")});
  }

  function draw() {
    const i = +column.value, j = +row.value;
    if (y.length > 1) drawMap();
    drawCut();
    const where = y.length > 1 ? `${place(x[i])}, ${place(y[j])}` : place(x[i]);
    output.textContent = `at ${where}: loss ${number(loss.train[j][i])} on training, ${number(loss.test[j][i])} on test curves`;
  }

  function follow(element, from, to, rows) {
    element.addEventListener("pointermove", event => {
      const frame = element.getBoundingClientRect(), share = (event.clientX - frame.left) / frame.width;
      const inside = Math.min(Math.max((share - from) / (to - from), 0), 1);
      column.value = Math.round(inside * (x.length - 1));
      if (rows) row.value = Math.round((1 - (event.clientY - frame.top) / frame.height) * (y.length - 1));
      draw();
    });
  }

  row.value = nearest(y);
  column.value = nearest(x);
  box.addEventListener("input", draw);
  follow(canvas, 0, 1, true);
  follow(svg, 62 / 400, 376 / 400, false);
  draw();
}
