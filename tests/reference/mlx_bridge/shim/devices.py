"""Devices and streams."""
from .connection import DEVICE, NoDevice
from .values import plain


class DeviceType:
    def __init__(self, name): self.name = name
    def __repr__(self): return "DeviceType." + self.name
    def __eq__(self, o): return isinstance(o, (DeviceType, Device)) and kind_of(o) == self.name
    def __hash__(self): return hash(self.name)
    def to_vkmx(self): return device_name(self)


class Device:
    def __init__(self, type, index=0): self.type, self.index = type, index
    def __repr__(self): return f"Device({self.type.name}, {self.index})"
    def __eq__(self, o): return kind_of(o) == kind_of(self) if isinstance(o, (DeviceType, Device)) else NotImplemented
    def __hash__(self): return hash(self.type.name)
    def to_vkmx(self): return device_name(self)


class Stream:
    """A stream of vkmx."""
    def __init__(self, remote): self.remote, self.device, self.index = remote, device_named(remote.method("deviceName")), remote.method("index")
    def __repr__(self): return f"Stream({self.device}, {self.index})"
    def __eq__(self, o): return isinstance(o, Stream) and (o.device, o.index) == (self.device, self.index)
    def __hash__(self): return hash((self.device, self.index))
    def to_vkmx(self): return self.remote


def kind_of(d): return d.name if isinstance(d, DeviceType) else d.type.name
cpu, gpu = DeviceType("cpu"), DeviceType("gpu")
def device_named(name): return Device(cpu) if name == "wasm" else Device(gpu, int(name.partition(":")[2] or 0))


def device_name(d):
    """vkmx's name of a device. In a run on the CPU there is no GPU, so that its figures are those of the CPU."""
    if kind_of(d) == "cpu": return "wasm"
    if not is_available(d): raise NoDevice(f"this run is on {DEVICE}: there is no GPU")
    return f"vulkan:{getattr(d, 'index', 0)}" if getattr(d, "index", 0) else DEVICE


class StreamContext:
    """with mx.stream(...): what is made there belongs to a stream, or to the default one of a device."""
    def __init__(self, where):
        if isinstance(where, (Device, DeviceType)): device_name(where)
        self.where = where

    def __enter__(self):
        self.scope = plain("stream", self.where)

    def __exit__(self, *_): self.scope.dispose()


def stream(s): return StreamContext(s)
def default_device(): return device_named(plain("default_device"))
def set_default_device(d): plain("set_default_device", d)
def is_available(d): return kind_of(d) == "cpu" or DEVICE != "wasm"
def device_count(d): return 0 if kind_of(d) == "gpu" and not is_available(d) else plain("device_count", kind_of(d))


def streams(name):
    return lambda *args: Stream(plain(name, *args))


default_stream, new_stream, new_thread_local_stream, new_thread_unsafe_stream = map(streams, ("default_stream", "new_stream", "new_thread_local_stream", "new_thread_unsafe_stream"))


def set_default_stream(s): plain("set_default_stream", s)
def synchronize(*where): plain("synchronize", *where)
