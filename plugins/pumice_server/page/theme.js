var e=localStorage.getItem("pumice.theme");e&&(document.documentElement.dataset.theme=e);
