"""Every decoder of something that comes from outside."""

from fuzz.amqp_frames import FRAMES
from fuzz.batches import BATCHES
from fuzz.control import CONTROL
from fuzz.devices import DEVICES
from fuzz.forms import Decoder
from fuzz.http_bodies import HTTP
from fuzz.stored import STORED

DECODERS: dict[str, Decoder] = {each.name: each for each in (*FRAMES, *CONTROL, *BATCHES, *DEVICES, *STORED, *HTTP)}
