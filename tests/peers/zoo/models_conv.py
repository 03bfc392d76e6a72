"""Convolutional models of the zoo, as people write them in PyTorch."""
import torch
from torch import nn

from models import Family, classes, images


def conv_bn(inputs, outputs, kernel, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
              nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Basic(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2015)."""

    expansion = 1

    def __init__(self, inputs, width, stride, act=nn.ReLU):
        super().__init__()
        self.body = nn.Sequential(conv_bn(inputs, width, 3, stride, act=act), conv_bn(width, width, 3, act=None))
        self.act = act()
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != width:
            self.shortcut = conv_bn(inputs, width, 1, stride, act=None)

    def forward(self, x):
        return self.act(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = width * self.expansion
        self.body = nn.Sequential(conv_bn(inputs, width, 1), conv_bn(width, width, 3, stride),
                                  conv_bn(width, outputs, 1, act=None))
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = conv_bn(inputs, outputs, 1, stride, act=None)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, block, stem, widths, depths, classes=10, **more):
        super().__init__()
        self.stem = stem
        channels = widths[0]
        stages = []
        for i, (width, depth) in enumerate(zip(widths, depths)):
            for j in range(depth):
                stages.append(block(channels, width, 2 if i and not j else 1, **more))
                channels = width * block.expansion
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


def resnet8():
    return ResNet(Basic, conv_bn(3, 16, 3), (16, 32, 64), (1, 1, 1))


def resnet20(act=nn.ReLU):
    return ResNet(Basic, conv_bn(3, 16, 3, act=act), (16, 32, 64), (3, 3, 3), act=act)


def imagenet_stem():
    return nn.Sequential(conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))


def resnet18():
    return ResNet(Basic, imagenet_stem(), (64, 128, 256, 512), (2, 2, 2, 2))


def resnet50():
    return ResNet(Bottleneck, imagenet_stem(), (64, 128, 256, 512), (3, 4, 6, 3))


class Inverted(nn.Module):
    """Sandler et al., 2018."""

    def __init__(self, inputs, outputs, stride, expand, act):
        super().__init__()
        width = inputs * expand
        layers = [conv_bn(inputs, width, 1, act=act)] if expand != 1 else []
        layers += [conv_bn(width, width, 3, stride, groups=width, act=act),
                   conv_bn(width, outputs, 1, act=None)]
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV2(nn.Module):
    def __init__(self, width=0.35, classes=10, dropout=0.0, act=nn.ReLU6):
        super().__init__()

        def scaled(channels):
            return max(8, int(channels * width + 4) // 8 * 8)

        # Strides for images of 32 x 32.
        rows = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                (6, 160, 3, 2), (6, 320, 1, 1))
        channels = scaled(32)
        layers = [conv_bn(3, channels, 3, act=act)]
        for expand, outputs, count, stride in rows:
            for i in range(count):
                layers.append(Inverted(channels, scaled(outputs), stride if i == 0 else 1, expand, act))
                channels = scaled(outputs)
        layers.append(conv_bn(channels, 1280, 1, act=act))
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, classes))

    def forward(self, x):
        return self.head(self.features(x).mean([2, 3]))


def cnn1d():
    """Sensor series of 9 channels and 128 steps."""

    def block(inputs, outputs):
        return (nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs), nn.ReLU(),
                nn.MaxPool1d(2))

    return nn.Sequential(*block(9, 32), *block(32, 64), nn.Conv1d(64, 64, 3, padding=2, dilation=2),
                         nn.BatchNorm1d(64), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                         nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 6))


class Autoencoder(nn.Module):
    """Images of 28 x 28 through 16 numbers and back."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ELU(),
            nn.Flatten(), nn.Linear(32 * 49, 16), nn.Tanh())
        self.widen = nn.Linear(16, 32 * 49)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 3, 2, 1, output_padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 1, 3, padding=1),
            nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.widen(self.encoder(x)).reshape(-1, 32, 7, 7))


FAMILIES = {
    "resnet8": Family(resnet8, images(3, 32, 32), classes(10)),
    "resnet20": Family(resnet20, images(3, 32, 32), classes(10)),
    "resnet18": Family(resnet18, images(3, 64, 64), classes(10), batch=4, rate=0.01),
    "resnet50": Family(resnet50, images(3, 64, 64), classes(10), batch=4, rate=0.01),
    "mobilenetv2": Family(MobileNetV2, images(3, 32, 32), classes(10)),
    # The same without kinks, where float32 can follow float64 closely.
    "resnet20-smooth": Family(lambda: resnet20(nn.SiLU), images(3, 32, 32), classes(10)),
    "mobilenetv2-smooth": Family(lambda: MobileNetV2(act=nn.SiLU), images(3, 32, 32), classes(10)),
    "cnn1d": Family(cnn1d, images(9, 128), classes(6), rate=0.01),
    "autoencoder": Family(Autoencoder, images(1, 28, 28), lambda count: torch.rand(count, 1, 28, 28), "mse"),
}
