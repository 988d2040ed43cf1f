// Pictures of what is drawn: a copy of the nodes is put into an SVG, and that onto a canvas.

const NO_XML = /[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g; // characters that no XML may have
const PICTURE_PADDING = 20;

// A copy of `root` without what is only there to be pressed (see .mars-picture in race.css).
const pictured = (root, width) => {
  const copy = root.cloneNode(true);
  const drawn = root.querySelectorAll("canvas");
  copy.querySelectorAll("canvas").forEach((canvas, i) => {
    const image = make("img", canvas.className);
    image.src = drawn[i].toDataURL();
    canvas.replaceWith(image);
  });
  const frame = make("div", "mars-picture", copy);
  if (root.closest(".dark")) frame.classList.add("dark");
  Object.assign(frame.style, { width: `${width}px`, padding: `${PICTURE_PADDING}px` });
  return frame;
};

const pictureWidth = (root) => Math.max(480, root.offsetWidth) + 2 * PICTURE_PADDING;

// Height of the picture of `root` as it is now, CSS px.
const pictureHeight = (root) => {
  const frame = pictured(root, pictureWidth(root));
  const place = make("div", "mars-hidden", frame);
  document.body.append(place);
  const height = frame.offsetHeight;
  place.remove();
  return height;
};

// Promises a canvas with `root` as it is now. height: CSS px; scale: pixels for each of them.
const drawPicture = async (root, { scale = 2, height = pictureHeight(root) } = {}) => {
  const width = pictureWidth(root);
  const frame = pictured(root, width);
  frame.style.height = `${height}px`;
  const sheet = make("style");
  sheet.textContent = document.querySelector("#mars-sheet").textContent;
  frame.prepend(sheet);
  const inside = new XMLSerializer().serializeToString(frame).replace(NO_XML, "\ufffd").toWellFormed();
  const picture = `<svg xmlns="${SVG}" width="${width}" height="${height}">` +
    `<foreignObject width="100%" height="100%">${inside}</foreignObject></svg>`;
  const image = new Image(width, height);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}`;
  await image.decode();
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.drawImage(image, 0, 0);
  return canvas;
};

// Promises what use(canvas) makes of the picture of every `every` ms of a recording, and of its
// end; no more than `most`. view: { node, length, seek }, both in ms. onDrawn(done, count) tells.
const drawFrames = async (view, { every, scale, most }, use, onDrawn = () => {}) => {
  const count = Math.min(most, Math.ceil(view.length / every) + 1);
  view.seek(view.length);
  const height = pictureHeight(view.node);
  const frames = [];
  for (let i = 0; i < count; i++) {
    view.seek(i === count - 1 ? view.length : i * Math.max(every, view.length / (most - 1)));
    frames.push(await use(await drawPicture(view.node, { scale, height })));
    onDrawn(i + 1, count);
  }
  return frames;
};
