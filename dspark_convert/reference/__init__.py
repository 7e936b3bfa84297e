"""What a draft and its target compute, in PyTorch, written from the models' definition.

It is what a converted file is measured against, so it shares nothing with the converter: it imports
no other package of ``dspark_convert``, reads config.json with ``json`` and tensors with safetensors'
torch loader, and decides by itself what a config means. A misreading would have to be made twice
to go unseen. It needs torch and safetensors (the extra ``validate``).

Everything that it cannot compute is a plain ``ValueError`` of one sentence.
"""
