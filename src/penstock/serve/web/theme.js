// @ts-check
// Applies the stored theme before the first paint. Not a module, so that it runs at once.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem('penstock-theme');
  } catch {
    // Without storage the page follows the system.
  }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
