// The colours that were chosen, before the first paint. Not a module, so that it runs at once.
(() => {
  const chosen = (() => {
    try {
      return localStorage.getItem('penstock-theme');
    } catch {
      return null;
    }
  })();
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
