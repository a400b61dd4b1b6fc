"""Curves over the message size, drawn by gnuplot."""
import statistics
import subprocess

from report import size_text

PLOT = '''set terminal svg size 900,560 font "sans,12" background "white" enhanced
set output "{svg}"
set title "{title}\\n{{/*0.8 {about}}}"
set xlabel "message size"
set ylabel "{ylabel}"
set logscale x 2
set logscale y
set xtics ({tics})
set grid
set key left top
plot {curves}
'''


def _text(text):
    """As gnuplot's enhanced mode shows it."""
    for special in '\\_^@&~{}':
        text = text.replace(special, '\\\\' + special)
    return text.replace('"', "'")


def plot(svg, title, about, ylabel, curves):
    """`curves` is name to {size: values of the rounds}: their median, from the lowest to the highest. Needs gnuplot."""
    data, drawn = [], []
    for i, (name, curve) in enumerate(curves.items()):
        rows = (f'{size} {statistics.median(values)} {min(values)} {max(values)}' for size, values in sorted(curve.items()))
        data.append(f'$c{i} << EOD\n' + '\n'.join(rows) + '\nEOD\n')
        drawn.append(f'$c{i} using 1:2:3:4 with yerrorlines lw 1.5 ps 0.5 title "{_text(name)}"')
    tics = ', '.join(f'"{size_text(1 << i)}" {1 << i}' for i in range(1, 24, 2))
    script = ''.join(data) + PLOT.format(svg=svg, title=_text(title), about=_text(about), ylabel=ylabel, tics=tics,
                                         curves=', '.join(drawn))
    done = subprocess.run(['gnuplot'], input=script, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError('gnuplot: ' + done.stderr.strip())
