"""The looks of every report: one style sheet, light, dark, narrow and on paper."""

_LIGHT = """
  --page: #f4f6f8; --surface: #ffffff; --ink: #1f2933; --quiet: #5a6875; --line: #dde3ea;
  --good: #15803d; --note: #52606d; --warn: #b45309; --bad: #b91c1c;
  --measured: #52606d; --model: #c2410c; --second: #1d4ed8; --band: #9fb3c8;
"""
_DARK = """
  --page: #11151a; --surface: #1a2027; --ink: #e4e9ee; --quiet: #9fadba; --line: #35404b;
  --good: #4ade80; --note: #9fadba; --warn: #fbbf24; --bad: #f87171;
  --measured: #a9b7c4; --model: #fb923c; --second: #7ba4ff; --band: #52667a;
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
body {{
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}}
header, main, footer {{ max-width: 1040px; margin: 0 auto; padding: 0 20px; }}
header {{ padding-top: 28px; }}
h1 {{ font-size: 1.65rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.18rem; line-height: 1.35; margin: 0 0 10px; }}
p {{ margin: 8px 0; max-width: 78ch; overflow-wrap: anywhere; }}
.quiet, figcaption {{ color: var(--quiet); font-size: 0.88rem; }}
section {{
  background: var(--surface); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px 24px; margin: 18px 0;
}}
.badge {{
  display: inline-block; vertical-align: 0.16em; padding: 1px 11px; border-radius: 99px;
  border: 1.5px solid currentColor; font-size: 0.8rem; font-weight: 600; white-space: nowrap;
}}
.badge.good, .sign {{ color: var(--good); }}
.badge.note, .note > .sign {{ color: var(--note); }}
.badge.warn, .warn > .sign {{ color: var(--warn); }}
.badge.bad, .bad > .sign {{ color: var(--bad); }}
.verdict {{ border-left-width: 6px; }}
.verdict h2 {{ font-size: 1.4rem; }}
.verdict.good {{ border-left-color: var(--good); }}
.verdict.note {{ border-left-color: var(--note); }}
.verdict.warn {{ border-left-color: var(--warn); }}
.verdict.bad {{ border-left-color: var(--bad); }}
.findings {{ list-style: none; margin: 10px 0; padding: 0; }}
.findings li {{ display: flex; gap: 10px; margin: 7px 0; max-width: 82ch; }}
.sign {{ flex: none; width: 1.2em; text-align: center; font-weight: 800; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 16px 0; }}
.tile {{ border: 1px solid var(--line); border-radius: 8px; padding: 9px 13px; }}
.tile dt {{ font-size: 0.84rem; color: var(--quiet); }}
.tile dd {{ margin: 0; }}
.tile .value {{ font-size: 1.4rem; line-height: 1.35; font-weight: 650; font-variant-numeric: tabular-nums; }}
.tile.good .value {{ color: var(--good); }}
.tile.warn .value {{ color: var(--warn); }}
.tile.bad .value {{ color: var(--bad); }}
.wide {{ overflow-x: auto; margin: 12px 0; }}
table {{ border-collapse: collapse; font-size: 0.93rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 5px 14px 5px 0; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); }}
th:first-child, .words th, .words td {{ text-align: left; }}
thead th {{ font-size: 0.84rem; font-weight: 600; color: var(--quiet); vertical-align: bottom; white-space: pre-line; }}
tbody th {{ font-weight: 600; }}
td {{ white-space: nowrap; }}
.words td {{ white-space: normal; overflow-wrap: anywhere; min-width: 9em; }}
.columns {{ display: grid; gap: 14px 24px; grid-template-columns: minmax(0, 1fr); margin: 12px 0; }}
@media (min-width: 720px), print {{
  .columns-2 {{ grid-template-columns: repeat(2, minmax(0, 1fr)); }}
  .columns-3 {{ grid-template-columns: repeat(3, minmax(0, 1fr)); }}
}}
.columns > * {{ min-width: 0; }}
figure {{ margin: 0; break-inside: avoid; min-width: 0; }}
figcaption {{ margin-top: 2px; max-width: 78ch; }}
svg.plot {{ display: block; width: 100%; height: auto; }}
svg.plot * {{ stroke-linejoin: round; stroke-linecap: butt; }}
svg.plot text {{ fill: var(--ink); }}
details {{ margin: 10px 0; }}
summary {{ cursor: pointer; color: var(--quiet); font-size: 0.93rem; }}
footer {{ padding-bottom: 28px; }}
@media (max-width: 560px) {{
  body {{ font-size: 15px; }}
  header, main, footer {{ padding-left: 10px; padding-right: 10px; }}
  header {{ padding-top: 18px; }}
  section {{ padding: 14px 14px; margin: 12px 0; }}
  .tiles {{ grid-template-columns: repeat(2, minmax(0, 1fr)); }}
  th, td {{ padding-right: 11px; }}
}}
@media print {{
  :root {{ color-scheme: light; {_LIGHT} --page: #ffffff; }}
  @page {{ margin: 14mm; }}
  body {{ font-size: 10.5pt; }}
  header, main, footer {{ max-width: none; padding: 0; }}
  section {{ border-radius: 0; border-width: 1px 0 0; padding: 10px 0; margin: 8px 0; }}
  section.verdict {{ border-left-width: 6px; padding-left: 14px; }}
  h2, h2 + p, thead {{ break-after: avoid; }}
  tr, li, .tile {{ break-inside: avoid; }}
  .wide {{ overflow: visible; }}
  section > .wide {{ break-inside: avoid; }}
  .columns table {{ font-size: 0.76em; }}
  .columns th, .columns td {{ padding-right: 7px; }}
  details::details-content {{ content-visibility: visible; block-size: auto; }}
}}
"""
