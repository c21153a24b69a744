import copy
import io
import pickle

import torch
from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
first = generate(model, 5)
file = io.BytesIO()
torch.save(model.state_dict(), file)
again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
print(first == generate(again, 5), len(generate(again, 500)))
