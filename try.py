import torch, json, tempfile, pathlib, warnings
import ocssl, transformers
from transformers import AutoModel
torch.set_num_threads(1)
def go(name, size, **more):
    l = ocssl.Learner("solar", image_size=size, settings={"encoder.name": name, "memory.capacity": 20, "objective.projection": 16, "schedule.batch": 8, "schedule.passes": 1, **more})
    g = torch.Generator().manual_seed(0)
    for _ in range(3): i = l.partial_fit(torch.randint(0,256,(4,3,size,size),dtype=torch.uint8,generator=g))
    print(name.split("/")[-1], i.loss, l.transform(torch.zeros(2,3,size,size,dtype=torch.uint8)).shape, l.settings.views.mean, flush=True)
    d = tempfile.mkdtemp(); l.save(d); m = ocssl.Learner.load(d)
    x = torch.randint(0,256,(4,3,size,size),dtype=torch.uint8,generator=g)
    assert l.partial_fit(x) == m.partial_fit(x)
    from ocssl.encoders import stages
    st = stages(l.encoder); print("  stages", max(st.values())+1, [n for n in st if st[n]==max(st.values())][:2])
    none=[n for n,p in l.encoder.named_parameters() if p.requires_grad and p.grad is None]; print("  no grad", none)
go("vit", 18, **{"encoder.dim": 12, "encoder.depth": 2})
T = transformers
cfgs = {"resnet": T.ResNetConfig(embedding_size=8, hidden_sizes=[8,16], depths=[1,1], layer_type="basic"),
 "convnext": T.ConvNextConfig(hidden_sizes=[8,16], depths=[1,1], num_stages=2),
 "vit": T.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8),
 "dinov2": T.Dinov2Config(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14)}
for k,c in cfgs.items():
    d = tempfile.mkdtemp(suffix=k); torch.manual_seed(0); AutoModel.from_config(c).save_pretrained(d)
    pathlib.Path(d,"preprocessor_config.json").write_text(json.dumps({"image_mean":[.1,.2,.3],"image_std":[.5,.5,.5],"size":{"height":16,"width":16}}))
    try: go("hf:"+d, 20)
    except Exception as e: import traceback; traceback.print_exc()
