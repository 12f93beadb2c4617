() => {
  const dialogs = [...document.querySelectorAll('dialog[open]')];
  const top = dialogs.at(-1) ?? document.body;
  const name = (one) => one.getAttribute('aria-label') || one.innerText?.trim().slice(0, 40) || one.className;
  const styles = new Map();
  const style = (one) => { if (!styles.has(one)) styles.set(one, getComputedStyle(one)); return styles.get(one); };
  const ancestors = (one) => { const found = []; for (let at = one.parentElement; at; at = at.parentElement) found.push(at); return found; };
  const clips = (one) => style(one).overflowX !== 'visible' || style(one).overflowY !== 'visible';
  const scrolls = (one) => ['auto', 'scroll'].includes(style(one).overflowX) && one.scrollWidth > one.clientWidth + 1;
  // What is in sight of an element: its box without what its ancestors cut off.
  const seen = (one) => {
    let { left, right, top, bottom } = one.getBoundingClientRect();
    for (const at of ancestors(one)) if (clips(at)) {
      const box = at.getBoundingClientRect();
      [left, right, top, bottom] = [Math.max(left, box.left), Math.min(right, box.right), Math.max(top, box.top), Math.min(bottom, box.bottom)];
    }
    return { left, right, top, bottom, isSeen: right - left > 1 && bottom - top > 1 };
  };
  // What lies above the page on purpose: a popover, a button that floats over a list.
  const layer = (one) => [one, ...ancestors(one)].find((at) => ['absolute', 'fixed', 'sticky'].includes(style(at).position)) ?? null;
  const controls = [...top.querySelectorAll('button, a[href], input:not([type=file]), select, textarea, summary')]
    .filter((one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !one.closest('[inert], svg, .visually-hidden'))
    .map((one) => ({ one, box: seen(one), layer: layer(one) }))
    .filter(({ box }) => box.isSeen);
  const problems = [];
  for (const { one } of controls) {
    const { left, right } = one.getBoundingClientRect();
    if ((left < -1 || right > innerWidth + 1) && !ancestors(one).some(scrolls)) problems.push(`cut off: ${name(one)}`);
  }
  for (let a = 0; a < controls.length; a += 1) for (let b = a + 1; b < controls.length; b += 1) {
    const [first, second] = [controls[a], controls[b]];
    if (first.layer !== second.layer || first.one.contains(second.one) || second.one.contains(first.one)) continue;
    const wide = Math.min(first.box.right, second.box.right) - Math.max(first.box.left, second.box.left);
    const high = Math.min(first.box.bottom, second.box.bottom) - Math.max(first.box.top, second.box.top);
    if (wide > 2 && high > 2) problems.push(`overlap: ${name(first.one)} and ${name(second.one)}`);
  }
  for (const one of top.querySelectorAll('p, span, strong, li, td, th, dd, dt, label, h1, h2, h3')) {
    if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim().length > 12) || !one.checkVisibility() || one.closest('svg, math, pre')) continue;
    const { width, height } = one.getBoundingClientRect();
    if (width > 4 && width < 100 && height > 4.5 * parseFloat(style(one).fontSize) * 1.3) problems.push(`squeezed: ${name(one)} is ${Math.round(width)} px wide`);
  }
  if (document.scrollingElement.scrollWidth > innerWidth + 1) problems.push('the page scrolls sideways');
  for (const one of dialogs) if (one.scrollWidth > one.clientWidth + 1) problems.push(`the dialog ${name(one)} scrolls sideways`);
  const send = document.querySelector('button.send');
  if (!dialogs.length && send?.checkVisibility()) {
    const box = send.getBoundingClientRect();
    if (box.bottom > innerHeight + 1 || box.top < 0) problems.push('the send button is out of sight');
  }
  return problems;
}
