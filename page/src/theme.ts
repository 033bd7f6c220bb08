/** Dark or light as it was chosen, before anything is drawn. */

const chosen = localStorage.getItem("pumice.theme");
if (chosen) document.documentElement.dataset.theme = chosen;
