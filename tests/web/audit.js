// What is wrong with a page for those who hear it, use the keyboard, or see less well. Returns a list of complaints.
() => {
  const found = [];
  const say = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (element) =>
    element.checkVisibility({ visibilityProperty: true }) && !element.closest('[aria-hidden="true"]');

  // Names
  const nameOf = (element) => {
    const by = (element.getAttribute('aria-labelledby') ?? '')
      .split(' ')
      .map((id) => document.getElementById(id)?.textContent ?? '')
      .join('');
    const label = element.labels ? [...element.labels].map((each) => each.textContent).join('') : '';
    const own = /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName) ? '' : element.textContent;
    return (element.getAttribute('aria-label') || by || label || own || element.getAttribute('alt') || '').trim();
  };
  for (const element of all(
    'a[href], button, input, select, textarea, summary, [role="log"], [role="region"], [role="img"], [role="group"], [role="search"], nav, aside, section.panel',
  )) {
    if (seen(element) && !nameOf(element)) say('it has no name', element);
  }
  for (const element of all('svg, img')) {
    const told =
      element.closest('[aria-hidden="true"]') ||
      (element.getAttribute('role') === 'img' && nameOf(element)) ||
      element.getAttribute('alt');
    if (!told) say('a picture without words', element);
  }
  for (const element of all('th')) if (!element.textContent.trim()) say('a column without a name', element);
  for (const element of all('table')) if (!element.caption?.textContent) say('a table without a caption', element);

  // Structure
  for (const [selector, number] of [
    ['main', 1],
    ['h1', 1],
    ['body > header', 1],
    ['nav[aria-label]', 1],
    ['html[lang]', 1],
    ['[aria-live]:not([aria-live="off"])', null],
  ]) {
    const there = all(selector).length;
    if (number === null ? there < 1 : there !== number) found.push(`there are ${there} of ${selector}`);
  }
  let level = 1;
  for (const element of all('h1, h2, h3, h4')) {
    const here = Number(element.tagName[1]);
    if (here > level + 1) say('a heading skips a level', element);
    level = here;
  }
  const ids = all('[id]').map(({ id }) => id);
  for (const id of new Set(ids))
    if (ids.filter((each) => each === id).length > 1) found.push(`the id ${id} is there twice`);
  for (const element of all('[tabindex]')) if (element.tabIndex > 0) say('it jumps the queue', element);
  for (const element of all('[style]')) say('a style in markup', element);
  for (const element of all('*')) {
    const scrolls =
      element.scrollHeight > element.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(element).overflowY);
    if (
      scrolls &&
      seen(element) &&
      element !== document.documentElement &&
      element.tabIndex < 0 &&
      !element.querySelector('a, button')
    )
      say('it scrolls, but not by keyboard', element);
  }
  if (document.documentElement.scrollWidth > innerWidth)
    found.push(`it is ${document.documentElement.scrollWidth - innerWidth} px too wide`);

  // Contrast: of every text that can be seen, against what is really behind it
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (front, back) => [0, 1, 2].map((part) => front[part] * front[3] + back[part] * (1 - front[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const colour = rgba(getComputedStyle(each).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255, 1]);
  };
  const light = (colour) =>
    [0.2126, 0.7152, 0.0722].reduce((sum, weight, part) => {
      const value = colour[part] / 255;
      return sum + weight * (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    }, 0);
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const check = (element, style) => {
    const back = behind(element);
    const got = ratio(over(rgba(style.color), back), back);
    if (got < 4.5) say(`contrast ${got.toFixed(2)} (${style.color} on ${back.slice(0, 3).map(Math.round)})`, element);
  };
  let texts = 0;
  for (const element of all('body *')) {
    const words = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (
      element.closest('svg, noscript, option, :disabled, .visually-hidden') ||
      !element.checkVisibility({ visibilityProperty: true })
    )
      continue;
    if (words || /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName)) {
      check(element, getComputedStyle(element));
      texts++;
    }
    if (element.placeholder) check(element, getComputedStyle(element, '::placeholder'));
  }
  if (texts < 10) found.push(`only ${texts} texts were looked at`);
  // Edges of controls need 3:1
  for (const element of all('button:not(.quiet):not(:disabled), select, input, textarea')) {
    const style = getComputedStyle(element);
    if (
      !seen(element) ||
      element.closest('.drop, .findings') ||
      element.matches('.visually-hidden, .main') ||
      style.borderTopWidth === '0px'
    )
      continue;
    const got = ratio(over(rgba(style.borderTopColor), behind(element.parentElement)), behind(element.parentElement));
    if (got < 3) say(`edge ${got.toFixed(2)}`, element);
  }
  return found;
};
