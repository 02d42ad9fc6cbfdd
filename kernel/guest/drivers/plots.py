# Plots without a line of set-up. Nothing is imported here that the user has
# not imported: each function is called after the import of a library.

BACKEND = '_sandbook_mpl'
shown = []             # figures that were shown in this cell


# ---------------------------------------------------------------- matplotlib

def hook_matplotlib(matplotlib):
    if getattr(matplotlib, '_sandbook', None):
        return
    matplotlib._sandbook = True
    if BACKEND not in _modules and backend_finder not in sys.meta_path:
        sys.meta_path.insert(1, backend_finder)
    if not _environ.get('MPLBACKEND'):
        matplotlib.rcParams['backend'] = 'module://' + BACKEND
    if show_left not in before_end:
        before_end.append(show_left)
    if ST.shell is not None:
        part('magic')['inline_config'](ST.shell)


class BackendFinder:
    """Makes the matplotlib backend when matplotlib asks for it."""

    def find_spec(self, name, path=None, target=None):
        if name != BACKEND:
            return None
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from matplotlib.backend_bases import FigureManagerBase
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        class FigureManager(FigureManagerBase):
            def show(self):
                show_figure(self.canvas.figure)

        class FigureCanvas(FigureCanvasAgg):
            manager_class = FigureManager

        def new_figure_manager(num, *args, FigureClass=Figure, **kwargs):
            return new_figure_manager_given_figure(num, FigureClass(*args, **kwargs))

        def new_figure_manager_given_figure(num, figure):
            canvas = FigureCanvas(figure)
            return FigureManager(canvas, num)

        module.FigureCanvas, module.FigureManager = FigureCanvas, FigureManager
        module.new_figure_manager = new_figure_manager
        module.new_figure_manager_given_figure = new_figure_manager_given_figure
        module.draw_if_interactive = lambda: None
        module.show = show_open


backend_finder = BackendFinder()


def hook_pyplot(pyplot):
    def show(*args, **kwargs):
        """Show every open figure in the notebook."""
        show_open()
    show._sandbook = True
    pyplot.show = show


def hook_figure(module):
    printers['matplotlib.figure.Figure'] = figure_bundle


def managers():
    helpers = _modules.get('matplotlib._pylab_helpers')
    return helpers.Gcf.get_all_fig_managers() if helpers is not None else []


def was_shown(fig):
    return any(f is fig for f in shown)


def formats():
    cfg = getattr(ST.shell, '_sandbook_inline', None) if ST.shell is not None else None
    wanted = list(getattr(cfg, 'figure_formats', ())) or ['png']
    return [f for f in wanted if f in ('png', 'png2x', 'retina', 'svg', 'jpg', 'jpeg', 'pdf')] or ['png']


def figure_bundle(fig):
    """Data and metadata of a figure, for the display."""
    import io
    shown.append(fig)
    data, meta = {}, {}
    for f in formats():
        buf = io.BytesIO()
        twice = f in ('png2x', 'retina')
        fmt = 'png' if twice else {'jpg': 'jpeg'}.get(f, f)
        fig.savefig(buf, format=fmt, bbox_inches='tight', dpi=fig.dpi * (2 if twice else 1),
                    facecolor=fig.get_facecolor(), edgecolor=fig.get_edgecolor())
        b = buf.getvalue()
        mime = {'png': 'image/png', 'svg': 'image/svg+xml', 'jpeg': 'image/jpeg', 'pdf': 'application/pdf'}[fmt]
        data[mime] = b.decode('utf-8') if fmt == 'svg' else base64(b)
        if fmt == 'png':
            w, h = int.from_bytes(b[16:20], 'big'), int.from_bytes(b[20:24], 'big')
            if twice:
                meta[mime] = {'width': w // 2, 'height': h // 2}
    data['text/plain'] = text_of(fig)
    return data, meta


def show_figure(fig):
    if was_shown(fig):
        return
    if not fig.axes and not fig.texts and not fig.images:
        shown.append(fig)
        return
    try:
        data, meta = figure_bundle(fig)
    except Exception as e:
        complain('Drawing', fig, e)
        return
    publish(data, meta)


def show_open(*args, **kwargs):
    """plt.show(): show what is open and close it, as notebooks do."""
    helpers = _modules.get('matplotlib._pylab_helpers')
    if helpers is None:
        return
    for m in managers():
        show_figure(m.canvas.figure)
    helpers.Gcf.destroy_all()


def show_left():
    """At a cell's end, show figures that are still open, once."""
    if managers():
        show_open()
    del shown[:]


# ---------------------------------------------------------------- others

def hook_pil(module):
    def show(self, title=None, **kw):
        """Show the image in the notebook."""
        display(self)
    module.Image.show = show


def hook_plotly(module):
    cls = module.BaseFigure

    def mimebundle(self, include=None, exclude=None, **kw):
        return plotly_bundle(self)

    def ipython_display(self):
        display(plotly_bundle(self), raw=True)
    cls._repr_mimebundle_ = mimebundle
    cls._ipython_display_ = ipython_display
    cls._repr_html_ = lambda self: None
    cls.show = lambda self, *args, **kw: display(plotly_bundle(self), raw=True)


def hook_plotly_io(module):
    def show(fig, *args, **kw):
        if isinstance(fig, dict):
            import plotly.graph_objects as go
            fig = go.Figure(fig)
        display(plotly_bundle(fig), raw=True)
    module.show = show


def plotly_bundle(fig):
    data = {'text/plain': 'plotly figure with %d traces' % len(fig.data)}
    data['application/vnd.plotly.v1+json'] = decode(fig.to_json().encode('utf-8'))
    data['text/html'] = fig.to_html(full_html=False, include_plotlyjs=True)
    return data


def hook_altair(module):
    module.renderers.enable('mimetype')
    mixin = getattr(module, 'TopLevelMixin', None)
    if mixin is not None:
        mixin.show = mixin.display = lambda self, *args, **kw: display(self)


def hook_bokeh(module):
    def show(obj, *args, **kw):
        from bokeh.embed import file_html
        from bokeh.resources import INLINE
        display({'text/html': file_html(obj, INLINE, 'plot'), 'text/plain': text_of(obj)}, raw=True)

    def quiet(*args, **kw):
        return None
    for name, f in (('show', show), ('output_notebook', quiet)):
        if hasattr(module, name):
            setattr(module, name, f)
