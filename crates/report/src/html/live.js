
// The server pushes the whole body; scroll position and selection stay, because only what is inside changes.
const state = document.getElementById("state");
const live = document.getElementById("live");
const source = new EventSource("events");
let over = false;
source.addEventListener("state", (event) => {
  state.textContent = event.data;
});
source.addEventListener("body", (event) => {
  // While text is selected the reader is copying a figure: leave it in place.
  if (!String(getSelection())) live.innerHTML = JSON.parse(event.data);
});
source.addEventListener("over", (event) => {
  over = true;
  state.textContent = event.data;
  source.close();
});
source.onerror = () => {
  if (!over) state.textContent = "the run's server is gone; what was last seen stays below";
};
