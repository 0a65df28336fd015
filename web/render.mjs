// Vega-Lite specifications in, SVG out: reads {"id": spec, ...} from standard input and writes
// {"id": "<svg ...>", ...}. Bundled by the build into narrow-render.mjs; `narrow report` runs it.
// Nothing is fetched: a specification that names a URL is refused.
// SPDX-License-Identifier: Apache-2.0
import { readFileSync } from 'node:fs';
import { Error as ErrorLevel, View, parse } from 'vega';
import { compile } from 'vega-lite';

const refuse = () => Promise.reject(new Error('a figure may not load anything'));
const loader = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

// Ids of clips would collide when several figures stand in one page.
const withOwnIds = (svg, id) => svg.replace(/\b(id="|url\(#)(\w+)/g, `$1${id}-$2`);

const specs = JSON.parse(readFileSync(0, 'utf8'));
const svgs = {};
for (const [id, spec] of Object.entries(specs)) {
  const view = new View(parse(compile(spec).spec), {
    renderer: 'none',
    loader,
    logLevel: ErrorLevel,
  });
  svgs[id] = withOwnIds(await view.toSVG(), id);
  view.finalize();
}
process.stdout.write(JSON.stringify(svgs));
