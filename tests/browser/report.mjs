// What a reader's browser makes of the report. Each check is a function that returns what is wrong.
// The pages hold no script, so all of this must hold with scripts switched off as well.
// usage: CHROMIUM=path node report.mjs FOLDER   (plain.html, hostile.html, undecided.html)
// SPDX-License-Identifier: Apache-2.0
import { chromium } from 'playwright-core';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.argv[2];
const pages = ['plain', 'hostile', 'undecided'];
const views = {
  desktop: { viewport: { width: 1200, height: 900 } },
  dark: { viewport: { width: 1200, height: 900 }, colorScheme: 'dark' },
  phone: { viewport: { width: 360, height: 740 }, hasTouch: true },
  'small phone': { viewport: { width: 320, height: 568 } },
};

const fits = () => {
  const wide = document.documentElement.scrollWidth;
  return wide > innerWidth ? [`the page is ${wide} px wide on a screen of ${innerWidth}`] : [];
};

const headings = () => {
  const wrong = [];
  let last = 0;
  for (const h of document.querySelectorAll('h1, h2, h3, h4')) {
    const level = Number(h.tagName[1]);
    if (level > last + 1) wrong.push(`h${last} is followed by h${level}: ${h.textContent}`);
    last = level;
  }
  if (document.querySelectorAll('h1').length !== 1) wrong.push('not exactly one h1');
  return wrong;
};

const tables = () => {
  const wrong = [];
  for (const t of document.querySelectorAll('table')) {
    const caption = t.querySelector(':scope > caption')?.textContent.trim();
    if (!caption) wrong.push('a table has no caption');
    for (const th of t.querySelectorAll('th')) {
      if (!th.hasAttribute('scope')) wrong.push(`${caption}: a head has no scope`);
    }
    const width = [...t.querySelectorAll('tr')].map((r) =>
      [...r.children].reduce((n, c) => n + c.colSpan, 0));
    if (new Set(width.filter((n) => n > 1)).size > 1 && !t.querySelector('tr.group')) {
      wrong.push(`${caption}: rows of different length`);
    }
  }
  return wrong;
};

const names = () => {
  const wrong = [];
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  if (new Set(ids).size !== ids.length) wrong.push('an id stands twice');
  for (const a of document.querySelectorAll('a[href^="#"]')) {
    if (!document.getElementById(a.hash.slice(1))) wrong.push(`${a.hash} leads nowhere`);
  }
  for (const svg of document.querySelectorAll('figure > svg')) {
    if (svg.getAttribute('role') !== 'img' || !svg.getAttribute('aria-label')) {
      wrong.push('a figure has no name');
    }
  }
  for (const r of document.querySelectorAll('[role=region], section')) {
    if (!r.getAttribute('aria-label') && !r.getAttribute('aria-labelledby')) {
      wrong.push('a region has no name');
    }
  }
  if (!document.documentElement.lang) wrong.push('no language');
  return wrong;
};

const inert = () => {
  const wrong = [];
  for (const e of document.querySelectorAll('*')) {
    if (/^(script|iframe|object|embed|form|base)$/i.test(e.tagName)) wrong.push(`<${e.tagName}>`);
    for (const a of e.attributes) {
      if (/^on/i.test(a.name) || /javascript:/i.test(a.value)) wrong.push(`${e.tagName} ${a.name}`);
    }
  }
  return wrong;
};

// WCAG 2.1, 1.4.3: text against what is painted behind it.
const contrast = () => {
  const numbers = (c) => c.match(/[\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const c = numbers(getComputedStyle(at).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const wrong = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement;
    if (!n.textContent.trim() || e.closest('.sr, .skip, style')) continue;
    const style = getComputedStyle(e);
    const svg = e.namespaceURI.endsWith('svg');
    const ink = numbers(svg ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(ink), light(behind(svg ? e.closest('figure') ?? e : e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large || svg ? 3 : 4.5)) {
      wrong.add(`${ratio.toFixed(2)}: ${e.tagName} '${n.textContent.trim().slice(0, 30)}'`);
    }
  }
  return [...wrong];
};

const figures = () => {
  const wrong = [];
  for (const f of document.querySelectorAll('figure > svg')) {
    const frame = f.getBoundingClientRect();
    for (const t of f.querySelectorAll('text')) {
      const r = t.getBoundingClientRect();
      if (r.width > 0 && (r.left < frame.left - 1 || r.right > frame.right + 1)) {
        wrong.push(`${f.getAttribute('aria-label')}: '${t.textContent}' is cut`);
      }
    }
  }
  return wrong;
};

const checks = { fits, headings, tables, names, inert, contrast, figures };
let passed = 0;
let failed = 0;
const report = (name, wrong) => {
  if (wrong.length === 0) {
    passed++;
    return;
  }
  failed++;
  console.log(`FAILED ${name}`);
  for (const w of wrong.slice(0, 8)) console.log(`  ${w}`);
};

async function open(browser, name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const noise = [];
  page.on('console', (m) => noise.push(`console: ${m.text()}`));
  page.on('pageerror', (e) => noise.push(`error: ${e}`));
  page.on('dialog', (d) => { noise.push(`dialog: ${d.message()}`); d.dismiss(); });
  page.on('request', (r) => { if (!/^(file|data):/.test(r.url())) noise.push(`request: ${r.url()}`); });
  await page.goto(pathToFileURL(resolve(folder, `${name}.html`)).href);
  await page.evaluate(() => document.querySelectorAll('details').forEach((d) => { d.open = true; }));
  return { context, page, noise };
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
for (const name of pages) {
  for (const [view, options] of Object.entries(views)) {
    const { context, page, noise } = await open(browser, name, options);
    for (const [what, check] of Object.entries(checks)) {
      report(`${name}, ${view}: ${what}`, await page.evaluate(check));
    }
    report(`${name}, ${view}: silent`, noise);
    await context.close();
  }
}

const words = {};
for (const javaScriptEnabled of [true, false]) {
  const { context, page } = await open(browser, 'plain', { javaScriptEnabled });
  words[javaScriptEnabled] = await page.locator('body').innerText();
  await context.close();
}
report('the same words without scripts',
  words[true] === words[false] && words[false].includes('INCONCLUSIVE') ? [] : ['they differ']);

{
  const { context, page } = await open(browser, 'plain', views.desktop);
  await page.keyboard.press('Tab');
  const first = await page.evaluate(() => document.activeElement.textContent);
  report('the first stop of the keyboard skips to the answer',
    /Skip to/.test(first) ? [] : [first]);
  const stops = new Set();
  for (let i = 0; i < 200; i++) {
    await page.keyboard.press('Tab');
    stops.add(await page.evaluate(() => {
      const e = document.activeElement;
      return e.matches('.scroll') ? e.getAttribute('aria-label') : e.tagName;
    }));
  }
  const regions = await page.evaluate(() =>
    [...document.querySelectorAll('.scroll')].map((e) => e.getAttribute('aria-label')));
  report('every table is reached by the keyboard', regions.filter((r) => !stops.has(r)));
  const pdf = await page.pdf({ format: 'A4', printBackground: true });
  const n = (pdf.toString('latin1').match(/\/Type\s*\/Page\b/g) ?? []).length;
  report('printing', pdf.length > 20000 && n >= 3 && n < 40 ? [] : [`${pdf.length} bytes, ${n} pages`]);
  await context.close();
}
await browser.close();
console.log(`${passed} checks passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
